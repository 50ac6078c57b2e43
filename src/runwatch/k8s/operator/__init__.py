"""The operator: objects of ours come to mean something; what the cluster knows reaches the head.

`main.py` starts and stops it: the health endpoint (`health.py`), the lease by which one of several
works (`lease.py`), and while it has that a term (`term.py`): kopf watches (`watches.py`), and what
a watch brings goes into a line of work (`work.py`): a key is handled by one worker at a time, from
what the API server says then, and what fails comes again later. So it does not matter which event
was missed, doubled or late.

`captures.py` and `connections.py` carry out objects: `targets.py` says of which pods and in which
way, `storage.py` puts files where they are wanted, `threads.py` is for what blocks; `runs.py` keeps
an object for each run, `events.py` tells of incidents. `pods.py` and `pod_events.py` say what
happened to pods (pure functions); `telling.py` records it, once: for the run that `pod_runs.py`
finds, in the operator's own journal (`own_journal.py`). `head.py` is the only file that asks the
head; `../api.py` is the only one that writes to the API server.
"""
