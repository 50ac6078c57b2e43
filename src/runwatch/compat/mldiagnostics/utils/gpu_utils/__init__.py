"""Questions to the driver of NVIDIA's GPUs."""
