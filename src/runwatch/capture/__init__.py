"""Looks at a process while it runs: where each of its threads is, from inside and from outside.

`stacks.py` has the shapes and this process's own stacks.  `outside.py` looks through py-spy.
`asking.py` lets the process answer.  `process.py` reads what the kernel knows about any process.
Every way of looking returns `Stacks`; a way that fails says why in `problems`.
"""
