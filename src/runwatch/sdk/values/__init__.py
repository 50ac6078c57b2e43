"""From what a program says to what can be recorded."""
