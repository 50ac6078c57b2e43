"""Questions to PyTorch."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "torch_config", "torch_host")
