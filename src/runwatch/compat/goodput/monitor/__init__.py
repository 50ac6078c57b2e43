"""A job's goodput, exported while the job runs.

`monitor.py` is what programs call, `timetable.py` says when an export is due, `uploads.py` makes
one.  It goes to TensorBoard (`tensorboard.py`) and to Cloud Monitoring (`cloud.py`, in the shapes
of `exports/cloud_monitoring.py`).  `pace.py` measures how step times deviate.
"""
