"""Questions to JAX, which a program that asks them has."""
