"""The sweep's load: what is sent, when it came, and what a level's figures are worth."""
