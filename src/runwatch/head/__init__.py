"""The service: takes batches in, keeps them in a store, answers questions about them.

`stream.py` (gRPC in) → `ingest.py` (one writer) → `store/`; `http.py` parses a question, asks
`views/`, answers JSON; `sessions.py` names stretches of time; `gswarm*.py` is the head as
gswarm-profiler's programs know it; `main.py` puts them together and holds the ports.  No SQL and no
arithmetic on measurements lives here.
"""
