"""Who changed what."""
