"""Serve a model with vLLM as a run."""

import sys

from runwatch.cli.run_vllm import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
