"""Profiles of this process."""
