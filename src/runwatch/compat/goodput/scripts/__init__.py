"""The original's commands."""
