"""cloud-diagnostics-xprof's command, provided by Runwatch.

A table and nothing else: the command is in `runwatch.compat.xprofiler`.
"""
