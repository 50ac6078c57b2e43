from runwatch.diagnostic import diagnose

__all__ = ["diagnose"]
