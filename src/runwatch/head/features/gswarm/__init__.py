"""The API that programs made for gswarm-profiler use."""
