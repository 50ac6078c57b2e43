"""Programs that do not know us: OTLP over gRPC and HTTP, and the requests that the unmodified
`google-cloud-mldiagnostics` makes to its self-hosted control plane.

`who.py` says whose data it is, `numbers.py` and `words.py` what becomes of it, `book.py` keeps the
journal of each sender, `receiver.py` stores a request once.  `runs.py` has the control plane.
"""
