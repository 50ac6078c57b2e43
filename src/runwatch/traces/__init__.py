"""What a profiler's trace says, read without a viewer.

`summary.py` is the door: `summarise(path)` answers with a `Summary`, `combine` puts those of one
session together.  `opening.py` recognises a file by its first bytes and keeps bad ones out,
`kineto.py` reads Chrome and Kineto JSON, `xplane.py` XLA's protobuf (`wire.py` its bytes);
both are streamed.  What they find goes to `account.py`, which knows what counts as work
(`names.py`) and does its sums over intervals (`intervals.py`).  Capturing traces lives next door in
`capture/`, showing them in the head and the command line.  Importing the door costs no numpy.
"""
