"""Every point of every run, and how the runs stand, in other people's databases.

    settings.py       the section [telemetry]: where to, how often
    backlog.py        which stored points are to be sent, in the order of time, across restarts
    pulse.py          state, goodput and last step of the runs, every few seconds
    outlet.py         what one receiver gets next, and what becomes of it
    post.py           a request over HTTP that ends in time
    remote_write.py   Prometheus, and what speaks like it
    otlp.py           OpenTelemetry collectors, over HTTP and gRPC

The thread, its pauses and its cursor file are those of `head/forward/`.  The bytes are made in
`exports/`.  The store is the queue: while a receiver is away nothing is kept in memory but how the
runs stood.
"""
