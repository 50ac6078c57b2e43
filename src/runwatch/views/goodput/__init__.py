"""Goodput: every nanosecond of a run accounted for, once.

In the order in which records become an account: `facts.py` (what was recorded), `track.py` (one
process), `skew.py` (clocks that differ), `muster.py` (all ranks, step by step), `ledger.py` (the
fold of a run), `books.py` (the steps of an attempt: judged by `judging.py`, and by what hides
behind a device in `queueing.py`), `timeline.py` (an exact partition of time), `drawing.py`
(attempts on one time axis), `account.py` (questions, answered), `explaining.py` (why), `figures.py`
(what is said beside it).
`classes.py` names what time can be spent on.  All of it is pure; the fold's state can be saved.
`docs/judging.md` has the rules in pictures.
"""
