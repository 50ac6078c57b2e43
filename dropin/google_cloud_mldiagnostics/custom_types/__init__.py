"""The words: metric names and units, the run's enums, the exceptions.

The calls that take them are in `api/`.
"""
