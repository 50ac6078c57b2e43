"""The head of gswarm 0.4.3 as it is, in its own environment: see `devices_beside.py`.

    .venv-bench/gswarm/bin/python benchmarks/gswarm_head.py GRPC_PORT HTTP_PORT

It serves models, too, and imports what that takes when it starts.  None of it is used here, so
empty modules stand in for PyTorch, transformers and safetensors.
"""

from __future__ import annotations

import sys
import types

LEFT_OUT = {"torch": (), "transformers": ("AutoModel", "AutoConfig"), "safetensors": ("safe_open",)}
FREQUENCY_MS = 1000


def main() -> None:
    for name, names in LEFT_OUT.items():
        module = types.ModuleType(name)
        for each in names:
            setattr(module, each, None)
        sys.modules[name] = module
    from gswarm.profiler.head import run_head_node

    run_head_node("127.0.0.1", int(sys.argv[1]), True, True, int(sys.argv[2]), FREQUENCY_MS)


if __name__ == "__main__":
    main()
