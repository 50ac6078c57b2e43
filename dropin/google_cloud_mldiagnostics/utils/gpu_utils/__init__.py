"""Questions to the driver of NVIDIA's GPUs."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "gpu_metric")
