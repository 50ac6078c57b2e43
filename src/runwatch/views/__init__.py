"""What the rows mean.  Pure functions over the shapes of `record.py`; the time is a parameter.

`runs.py` says how processes, attempts and runs stand; `series.py` picks and names curves;
`configs.py` merges configs; `steps.py` reads progress.  No I/O, no clock, no SQL: a store fetches
the rows (next door, in `store/`), `head/` and `cli/` hand them in.
"""
