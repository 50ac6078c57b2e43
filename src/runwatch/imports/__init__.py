"""Logs of other tools, read as runs.

`finding.py` says which runs lie below a path and in what form, by what the files hold.  There is
one file for each form (`tensorboard.py`, `wandb.py`, `mlflow_files.py`, `mlflow_sqlite.py`,
`tables.py`, `metric_entries.py`).  Each turns a log into the items of `items.py`, from where it was
read to the last time.  `writing.py` writes items as the journals of a run, and `ledger.py`
remembers how far each log was imported: so a value is imported once, however often one asks and
whatever is killed meanwhile.

Logs of ml-goodput-measurement and of gswarm have readers of their own (`compat/goodput/log`,
`wire/gswarm_pickle.py`), which `cli/commands/import_.py` calls.
"""
