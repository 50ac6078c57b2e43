"""What `runwatch status` finds out, one part per file."""
