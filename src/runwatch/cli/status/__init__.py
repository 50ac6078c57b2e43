"""The checks of `runwatch status`, one part per file."""
