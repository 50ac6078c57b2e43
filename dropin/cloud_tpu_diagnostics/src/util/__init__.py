"""The defaults."""
