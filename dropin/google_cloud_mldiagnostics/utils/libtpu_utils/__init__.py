"""Questions to libtpu."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "libtpu_metric")
