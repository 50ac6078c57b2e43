"""The crash-safe local log that every producer writes and every shipper reads.

`segment.py` defines the bytes, `segment_file.py` is a segment's file, `writer.py` appends (in
the training thread, so it is quick), `reader.py` decodes and follows (and survives torn tails and
damage; `columns.py` checks and decodes points and spans by the thousand, `lanes.py` is its
arithmetic), `liveness.py` tells whether a writer still lives, `retention.py` keeps a directory of
journals within its budget, `file_system.py` knows which places other hosts can see, and
`control.py` where a process's control socket is.  Getting records to a head is next door, in
`ship/`.
"""
