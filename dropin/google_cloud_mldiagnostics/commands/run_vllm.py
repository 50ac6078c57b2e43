"""Serve a model with vLLM as a run."""

import sys

from runwatch.compat.mldiagnostics.commands.run_vllm import logger, main

__all__ = ["logger", "main"]

if __name__ == "__main__":
    sys.exit(main())
