"""The service: takes batches in, keeps them in a store, answers questions about them.

In: `stream.py` (gRPC) or `local.py` (a directory) → `ingest.py` (one writer) → `store/`.
Out: `http/` takes a question, a feature asks `reading.py`, `views/` work the answer out.
Down: `outbox.py` sends commands to agents.
`local_head.py` puts them together, `main.py` adds the ports.  `features/` has one folder for each
part of what a head does, `state/` what several features share, `access/` tokens and roles.  No SQL
and no arithmetic on measurements lives here.
"""
