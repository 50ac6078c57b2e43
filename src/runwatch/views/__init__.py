"""What the stored rows mean.  Pure functions over the shapes of `record/` and `rows.py`.

`runs.py` decides the states of processes, attempts and runs; `series.py` picks and names curves;
`configs.py` merges configs; `steps.py` reads progress.  No I/O, no clock, no SQL: `store/` fetches
the rows, `head/` and `cli/` pass them in, and the time is a parameter.
"""
