"""The calls: `mlrun.machinelearning_run` begins a run, `metrics.record` records in it."""
