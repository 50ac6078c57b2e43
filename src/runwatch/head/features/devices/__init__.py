"""Every accelerator, and how it stands."""
