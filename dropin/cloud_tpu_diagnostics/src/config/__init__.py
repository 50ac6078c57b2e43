"""`runwatch.compat.tpu_diagnostics.configuration`."""
