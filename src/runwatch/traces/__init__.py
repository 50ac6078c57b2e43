"""Reads a profiler's trace and summarises it, without a viewer.

Start at `summary.py`: `summarise(path)` returns a `Summary`; `combine` joins those of one profile.
`opening.py` recognises a file by its first bytes and refuses bad ones.  `kineto.py` reads Chrome
and Kineto JSON, `xplane.py` reads XLA's protobuf (`wire.py` its bytes); both stream.  They pass
events to `account.py`, which sums up intervals (`intervals.py`) by kind of work (`names.py`).
`capture/` captures traces; the head and the command line show them.  Importing `summary` does not
import numpy.
"""
