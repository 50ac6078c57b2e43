"""`runwatch exec -- CMD`: any command becomes a run, and behaves as it does without us.

Three processes, in one process group.  The *command* is a child of the wrapper.  The *wrapper*
(`wrapper.py`) is what the user started: it waits, passes signals on, and ends as the command ended.
The *scribe* (`scribe.py`) relays what the command writes, and records it; it never takes a signal
as meant for it, and lives on only while somebody still holds a pipe of it.  `outlets.py` makes what
the command writes to (`ptys.py` and `keys.py`: where that is a terminal), `relay.py` passes bytes
on (`plain.py`: when nothing else works), `desk.py` answers the processes of the command, and
`chronicle.py` writes the records.  What the command is called and which variables it gets is in
`naming.py` and `environment.py`; `where.py` tells a person where to look.

Inside the command's processes, `sdk/boot/` and `sdk/launched.py` are our other end.
"""
