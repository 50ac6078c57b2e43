"""Shared read-only links."""
