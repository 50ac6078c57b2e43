"""Keeps, fetches and reduces records.  SQL lives here and nowhere else.

`store.py` is the Protocol every engine meets; `duck/` is the embedded engine; the conformance
suite in `tests/unit/store/` is written against the Protocol alone.  What rows *mean* (states,
goodput, diagnoses) is next door in `views/`.
"""
