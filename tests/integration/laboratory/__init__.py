"""The laboratory of the hang watch: programs that hang, and programs that only look like it.

`hanging.py`, `hanging_ranks.py` and `hanging_tasks.py` have the causes, `well.py`, `well_ranks.py`
and `well_tools.py` the look-alikes; `program.py` runs one of them as a process (or as several
ranks), `trials.py` watches it, and `table.py` writes what was said of each into docs/stacks.md.
"""
