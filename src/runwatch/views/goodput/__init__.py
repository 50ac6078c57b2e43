"""Goodput: every nanosecond of a run accounted for, once.

In the order in which records become an account: `facts.py` (reads records), `steps/track.py` (one
process), `skew.py` (clocks that differ), `steps/muster.py` (all ranks, step by step), `ledger.py`
(the fold of a run), `books.py` (books the steps of an attempt; `steps/judging.py` judges them,
`queueing.py` finds what hides behind a device), `timeline.py` (an exact partition of time),
`waiting.py` (when machines and pods were waited for), `drawing.py` (attempts on one time axis),
`account.py` (answers questions), `explaining.py` (why), `figures.py` (ETTR, MTBF, device-hours).

`classes.py` names what time can be spent on.  All of it is pure; the fold's state can be saved.
`docs/judging.md` has the rules in pictures.
"""
