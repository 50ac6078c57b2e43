"""The commands, for `python -m`: `collect_profile` and `run_vllm`."""
