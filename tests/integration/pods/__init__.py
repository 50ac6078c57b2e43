"""Pods, played: a container runtime for tests, small enough to be read.

A pod object goes in as a webhook has left it; what comes out are real processes in real pid, mount,
network, uts and ipc namespaces, with the volumes, variables, user and memory limit that it names.
`objects.py` reads the pod (pure functions), `kubelet.py` plays it, `box.py` becomes one container,
`network.py` holds the wire that nodes and pods share, `memory.py` the control groups, `system.py`
the system calls.  No API server has a part in this: that one is in `tests/cluster`.

Nothing outlives a test: namespaces end with their processes, which end with the test's own; mounts
are private; the wire lies in a network namespace of its own, so that the machine's own links and
routes are never touched.  Control groups are all that needs taking away.
"""
