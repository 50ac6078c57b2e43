"""Looks at a process while it runs: where each of its threads is, from inside and from outside.

`stacks.py` looks at this process itself, `outside.py` at another through py-spy, `asking.py` lets
the other process answer, `process.py` reads what the kernel knows of any process.  Each returns
`Stacks` (`record/stacks.py`); one that could not look says why in `problems`.
"""
