"""Training programs that measure themselves: scripts, each run as a process of its own.

`observed.py` measures, without Runwatch; `model_jax.py` and `model_torch.py` hold what is trained.
A script gets the file for the truth and the number of steps, and what it says itself.
"""
