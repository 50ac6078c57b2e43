"""Inside the training process: turns the program's calls into records in its own journal.

`front.py` is what `import runwatch` offers.  `run.py` is one process's part in a run.  `guard.py`
is the edge at which our failures stop.  `step.py` has steps and spans; `kinds.py` names the spans
with a meaning.  `hooks/` records what frameworks do, without changes to the program.  `values/`
turns logged values into numbers.  `identity.py` and `collect.py` find out which rank, run and
machine this is.  `ending.py` notices the end, `farewell.py` waits for the last records to be
stored.  `profiling/` takes profiles, `diagnosing.py` and `faults.py` collect stacks.  `launch.py`
starts the node's agent.  Standard library only; another process (`agent/`) sends the records to a
head.  Runs with the API of google-cloud-mldiagnostics are in `compat/mldiagnostics/`.
"""
