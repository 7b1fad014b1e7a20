"""The boundary smoke test: speculation ran below the threshold, stopped above it, and came back right."""
