"""Stored records in other people's formats.

`rows.py` describes an exported point; `csv.py`, `json.py` and `parquet.py` write points in batches,
so that a run of any length takes little memory; `stretches.py` writes them for programs that follow
a run.  `perfetto.py` writes a run as a timeline, of which `lifeline.py` is the run's own track.
`event_files.py` is the form of TensorBoard's files, `tensorboard.py` a directory of them.
`gauges.py` has numbers on their way into a database, `remote_write.py` and `otlp.py` their bytes.
`prometheus.py` reports on Runwatch itself and on the goodput of runs.  `fleet.py` lists the
devices, `frames.py` turns their samples into frames, and `session.py` writes the frames of a
session.  `cloud_logging.py` and `cloud_monitoring.py` have the entries and series of Google's
services.  `store/` reads points; `views/` says what they mean.
"""
