"""The injection webhook as a process of its own, asked over TLS by an API server.

The chart says what it may read, where it is, and which pods the API server asks it about.
"""
