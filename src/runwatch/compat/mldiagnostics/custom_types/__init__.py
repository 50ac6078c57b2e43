"""The words: metric names and units, the enums of a run, the exceptions."""
