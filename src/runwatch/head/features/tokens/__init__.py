"""Tokens beside the head's own."""
