"""Profile sessions and their viewers."""
