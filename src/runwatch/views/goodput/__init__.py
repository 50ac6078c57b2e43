"""Goodput: every nanosecond of a run accounted for, once.

In the order in which records become an account: `facts.py` (what was recorded), `track.py` (one
process), `ledger.py` (all of them, step by step), `books.py` (the steps of an attempt),
`timeline.py` (an exact partition of time), `drawing.py` (attempts on one time axis), `account.py`
(questions, answered), `figures.py` (what people expect beside it).
`classes.py` names what time can be spent on.  All of it is pure; the fold's state can be saved.
"""
