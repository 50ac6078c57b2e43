"""Keeps, fetches and reduces records.  SQL lives here and nowhere else.

`store.py` is the Protocol every engine meets; `engines.py` is the table of engines; `duck/` is the
embedded one.  The conformance suite in `tests/unit/store/` asks every engine in the table.
What rows *mean* (states, goodput, diagnoses) is next door in `views/`.
"""
