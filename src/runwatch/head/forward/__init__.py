"""Sends what a head has stored to somebody else's service, later if need be, and never twice
on purpose.

    trail.py       reads the records of chosen runs from the store, with a cursor that outlives us
    forwarder.py   the one thread of a forwarder: rounds, pauses after failures, a clean end
    report.py      how a forwarder stands, for `/metrics`, `/api/v1/health` and `runwatch status`
    cursor.py      the file of a cursor

Nothing here knows any service; `head/telemetry/` and `head/cloud/` do.  A training process is not
involved: what it recorded is in the store before a forwarder hears of it.
"""
