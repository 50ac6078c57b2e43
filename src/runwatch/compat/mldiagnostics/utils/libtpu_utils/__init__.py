"""Questions to libtpu."""
