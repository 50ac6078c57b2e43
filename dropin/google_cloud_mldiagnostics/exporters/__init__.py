"""The original's exporters; what they are given is recorded in the current run."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "base_exporter", "cloud_logging", "otel_exporter")
