"""Sends journals to a head: finds, follows and sends them, waits for acknowledgement, backs off.

`tail.py` follows every journal of a directory.  `client.py` sends new records over gRPC and moves
on only when the head has stored them.  `runwatch ui` uses the tail without the client.
"""
