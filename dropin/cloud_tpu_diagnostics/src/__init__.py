"""Where the original keeps its modules."""
