"""The small process on each node.  It samples the host and its devices, sees how processes end,
and ships journals to the head.

`main.py` is the loop.  `watch.py` learns how processes end.  `collectors/` holds one source of
numbers per file, and `lanes.py` the threads that read devices.  `attribution.py` knows which run a
device belongs to.  `queues/` asks schedulers how long jobs waited.  `settings.py` holds the
settings.  The agent writes to its own journal (`book.py`) like any other producer, so its records
reach the store by the same road as those of a training process.
"""
