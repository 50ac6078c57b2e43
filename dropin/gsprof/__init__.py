"""gswarm-profiler's commands `gsprof` and `gswarm`, provided by Runwatch.

Tables and nothing else: the commands are in `runwatch.compat.gswarm`.
"""
