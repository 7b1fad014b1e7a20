"""The only room that prints: text for people on stderr, JSON lines for programs on stdout."""
