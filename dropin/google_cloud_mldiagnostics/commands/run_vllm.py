"""Serve a model with vLLM as a run."""

import sys

from runwatch.compat.mldiagnostics.commands.run_vllm import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
