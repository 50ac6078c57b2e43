from runwatch.compat.tpu_diagnostics.diagnostic import diagnose

__all__ = ["diagnose"]
