"""Every accelerator and its state."""
