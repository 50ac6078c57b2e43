"""`google.cloud.logging` for programs that have no account: log entries go into the run.

The originals' guides begin with it.  `finding.py` lets Python find it: Google's own package if it
is installed (`real.py` sees that its client needs no credentials where there are none), else
`standin/`, which is `client.py` under Google's names.  `lines.py` records; `account.py` knows
whether there may be credentials.  With credentials nothing here changes anything.
"""
