"""A job's log lines on a timeline: the original's command `mltrace`.

`log_entries.py` reads entries of Cloud Logging from files or from the service, `trace.py` turns
them into a trace and a page, `command.py` is the command.
"""
