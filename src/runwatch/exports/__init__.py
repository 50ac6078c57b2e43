"""Stored records in other people's formats.

`rows.py` describes an exported point; `csv.py`, `json.py` and `parquet.py` write points in batches,
so that a run of any length takes little memory.  `perfetto.py` writes a run as a timeline.
`prometheus.py` reports on Runwatch itself and on the goodput of runs.  `fleet.py` lists the
devices, `frames.py` turns their samples into frames, and `session.py` writes the frames of a
session.  `cloud_logging.py` and `cloud_monitoring.py` have the entries and series of Google's
services.  `store/` reads points; `views/` says what they mean.
"""
