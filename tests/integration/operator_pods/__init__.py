"""What happens to pods reaches the run: a played kubelet, the operator's part that tells, a head.

`site.py` is all of it in one process: a `Cluster`, a head with its ports, programs whose records
are stored as they say.  `teller.py` is the operator's part as a process, to be killed.
"""
