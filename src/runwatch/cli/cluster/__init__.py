"""A cluster, asked by the user's own `kubectl`: it has the plugins, the files and the rights.

`kubectl.py` runs it and says what its errors mean, `release.py` finds the head and its token,
`forward.py` holds a port open, `named.py` finds the run of `job/llama`.  `runwatch status
--cluster` and `kubectl runwatch` use them.
"""
