"""A job's log: the entries that the original keeps in Cloud Logging, here in Runwatch's journals.

`recorder.py` writes entries and `entries.py` says how an entry lies in a journal.  `backend.py`
finds the log: in journals on this machine (`following.py`), or at a head (`remote.py`).
`reading.py` hands the calculator what is new, `imports.py` takes logs that the original wrote.
"""
