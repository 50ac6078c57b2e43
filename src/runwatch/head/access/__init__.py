"""Who may come in by either port, and what they may do."""
