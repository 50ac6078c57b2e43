"""What the original knows of the machine, its accelerators and its workload."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(
    __name__,
    "config_utils",
    "gcp",
    "gpu_utils",
    "host_utils",
    "jax_utils",
    "libtpu_utils",
    "metric_utils",
    "orchestrator_utils",
    "run_phase_utils",
    "torch_utils",
)
