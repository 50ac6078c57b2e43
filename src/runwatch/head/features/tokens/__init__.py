"""Tokens beside the main token."""
