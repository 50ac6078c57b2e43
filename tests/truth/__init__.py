"""A laboratory: simulated training jobs whose time is known, to check the goodput account against.

`machine.py` runs hosts, devices and their clocks, and keeps what physically happened and what each
process recorded.  `judging.py` says from the first what the time went into.  `families.py` names
the jobs, built of the loops in `loops.py`; `telling.py` hands the records to the account.
Nothing here but `telling.py` knows the account, so that a mistake in it is not made twice.
`python -m tests.truth` prints one line per family.
"""
