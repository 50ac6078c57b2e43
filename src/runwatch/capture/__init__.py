"""Looking at a process while it runs: where each of its threads is, from inside and from outside.

`stacks.py` holds the shapes and what this process can say of itself, `outside.py` looks through
py-spy, `asking.py` lets the process answer, `process.py` reads what the kernel tells of any
process.  Every way of looking returns `Stacks`; one that could not look says why in `problems`.
"""
