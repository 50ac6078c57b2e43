"""Keeps, fetches and reduces records.  All SQL is here.

`store.py` is the Protocol that every engine implements.  `engines.py` is the table of engines, and
`duck/` the embedded one.  The conformance suite in `tests/unit/store/` asks every engine in the
table.  What rows *mean* (states, goodput, diagnoses) is next door in `views/`.
"""
