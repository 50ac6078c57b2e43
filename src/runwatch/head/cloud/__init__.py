"""Google Cloud: what a head has stored, as entries of Cloud Logging and series of Cloud Monitoring.

    settings.py    the section [gcp]
    logs.py        stack dumps, goodput entries and metrics, as entries
    figures.py     the goodput of runs, as series
    clients.py     the services' own client libraries: connections, deadlines
    failures.py    what a failure means, and what a person can do about it
    exporters.py   puts them together, as the settings ask

What an entry or a series looks like is in `exports/cloud_logging.py` and `cloud_monitoring.py`.
How records are read and sent later is in `head/forward/`.  The libraries (`[gcp]`) are loaded by
the forwarders' threads alone.
"""
