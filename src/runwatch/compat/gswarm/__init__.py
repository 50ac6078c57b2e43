"""gswarm-profiler's commands `gsprof` and `gswarm`, provided by Runwatch.

`command.py` is the table of commands and their flags; `local.py` has those that run something here
(`start`, `connect`, `recover`, `stat`), `remote.py` those that ask a head over gRPC or HTTP.
`swarm.py` has gswarm 0.4's names for the same.
"""
