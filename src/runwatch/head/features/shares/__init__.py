"""Links for looking."""
