"""Journals to a head: find, follow, send, be acknowledged, back off.

`tail.py` follows every journal of a directory, `client.py` sends what it finds over gRPC and
moves on only when the head's store has it.  `runwatch ui` uses the tail without the client.
"""
