"""`runwatch.configuration`."""
