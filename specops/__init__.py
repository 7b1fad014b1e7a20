"""specops: change a running SGLang server, prove both sides of the gate, or put everything back."""

__version__ = "0.1.0"
