"""The original's rules, applied to a job's log.

`codes.py`, `stretch.py`, `moments.py` and `history.py` hold the log in memory.  `segments.py` and
`rules.py` are the original's rules; `windows.py` applies them to a part of the time, `elastic.py`
to jobs whose size changes.  `calculator.py` is what programs call.  `strict.py` asks
`views/goodput` for Runwatch's own account; `quiet.py` translates it for windows about which the
original says nothing.
"""
