"""cloud-diagnostics-xprof's command, spoken by Runwatch.

A table and nothing else: the command is in `runwatch.compat.xprofiler`.
"""
