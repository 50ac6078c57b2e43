"""The small process on each node: samples the host and its devices, sees processes live and die,
ships journals to the head.

`main.py` is the loop, `watch.py` learns how processes end, `collectors/` holds one source of
numbers per file, `lanes.py` the threads that devices are read in, `attribution.py` knows whose
device is whose, `queues/` asks schedulers how long jobs had waited, `settings.py` is what can be
set.  It writes to a journal of its own (`book.py`) like any other producer; what it saw is stored
by the same road as what the training process said.
"""
