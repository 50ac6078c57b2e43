"""The crash-safe local log that every producer writes and every shipper reads.

`segment.py` defines the bytes.  `segment_file.py` is a segment's file.  `writer.py` appends in the
training thread, so it must be fast.  `reader.py` decodes and follows a journal, past torn tails and
damage; `columns.py` checks and decodes points and spans by the thousand, with the arithmetic of
`lanes.py`.  `liveness.py` says whether a writer is still alive.  `retention.py` keeps a directory
of journals within its budget.  `file_system.py` knows which file systems other hosts can see.
`control.py` locates a process's control socket.  Sending records to a head is next door, in
`ship/`.
"""
