"""What a program says on its console becomes lines in the journal.

`screen.py` makes lines of bytes, as a terminal would show them.  `budget.py` says how many may be
recorded.  `keeper.py` puts both together: bytes in, `Console` records out.  `wrapping.py` listens
to `sys.stdout` and `sys.stderr` of this process.  Bytes pass through before we look at them.
"""
