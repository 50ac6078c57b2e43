"""cloud-diagnostics-xprof's names, provided by Runwatch.

A table and nothing else: the command and its classes are in `runwatch.compat.xprofiler`.
"""
