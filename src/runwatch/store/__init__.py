"""Keeps, fetches and reduces records.  All SQL is here.

`store.py` is the Protocol that every engine implements; `duck/` is the embedded engine.  The
conformance suite in `tests/unit/store/` uses the Protocol alone.  What rows *mean* (states,
goodput, diagnoses) is next door in `views/`.
"""
