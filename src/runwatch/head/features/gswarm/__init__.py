"""The head as programs made for gswarm-profiler know it."""
