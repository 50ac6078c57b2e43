"""The log of a run: lines of its console, and exceptions."""
