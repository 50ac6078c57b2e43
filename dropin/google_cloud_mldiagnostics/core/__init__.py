"""The current run (`global_manager`), its profiles (`xprof`), and what begins and fills it."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(
    __name__, "create_mlrun", "global_manager", "metrics", "xprof", "xprof_proxy"
)
