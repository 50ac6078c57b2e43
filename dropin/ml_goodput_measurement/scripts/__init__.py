"""Commands: `python -m ml_goodput_measurement.scripts.exclusion_query`."""
