"""Commands: `python -m google_cloud_mldiagnostics.commands.collect_profile` and `….run_vllm`."""
