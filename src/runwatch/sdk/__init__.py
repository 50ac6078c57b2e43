"""Inside the training process: what a program says becomes records in its own journal.

`front.py` is what `import runwatch` offers, `run.py` one process's part in a run, `guard.py` the
edge at which our failures stop, `step.py` steps and spans (`kinds.py` names those with a meaning),
`hooks/` what frameworks tell without being asked, `values.py` and `pending.py` turn what people
log into numbers, `identity.py` and `collect.py` find out who and where we are, `ending.py` notices
the end, `profiling.py` takes profiles, `diagnosing.py` collects stacks, and `launch.py` starts the
node's agent.  Standard library only; getting records to a head happens in another process
(`agent/`).  Runs as google-cloud-mldiagnostics begins them are in `compat/mldiagnostics/`.
"""
