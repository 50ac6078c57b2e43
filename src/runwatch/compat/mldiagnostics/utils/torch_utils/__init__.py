"""Questions to PyTorch, which a program that asks them has."""
