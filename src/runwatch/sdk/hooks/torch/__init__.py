"""A plain loop in PyTorch: its optimizers, its data loaders, its evaluations."""
