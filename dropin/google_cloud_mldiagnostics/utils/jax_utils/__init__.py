"""Questions to JAX."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "jax_config", "jax_host")
