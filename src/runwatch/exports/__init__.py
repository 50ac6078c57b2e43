"""What we keep, in other people's formats.

`rows.py` is the one description of an exported point; `csv.py`, `json.py` and `parquet.py` write it
out, a batch at a time, so that a run of any length takes little memory.  `perfetto.py` draws a run
on a timeline.  `prometheus.py` is about Runwatch itself and its runs' goodput.  `fleet.py` knows
which devices there are, `frames.py` turns their samples into frames and `session.py` writes a
session of them.  Reading points is next door in `store/`, what they mean in `views/`.
"""
