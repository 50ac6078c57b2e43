"""What the peers need, as requirements for pip.

bench_requirements.py           the `bench` group of pyproject.toml, for an older pip
bench_requirements.py gswarm    what the head of gswarm 0.4.3 imports, less its model serving
"""

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
GSWARM_HEAD = (
    "aiofiles>=23.1",
    "aiohttp>=3.9",
    "fastapi<1",
    "grpcio<2",
    "httpx<1",
    "loguru>=0.7",
    "matplotlib<4",
    "numpy<2",
    "nvitop>=1.3",
    "protobuf>=5,<6",
    "psutil>=5.9",
    "python-multipart>=0.0.18",
    "pyyaml>=6",
    "requests>=2.31",
    "rich<15",
    "seaborn>=0.13.2",
    "typer<1",
    "uvicorn<1",
)

if __name__ == "__main__":
    peers = tomllib.loads(PROJECT.read_text())["dependency-groups"]["bench"]
    print("\n".join(GSWARM_HEAD if "gswarm" in sys.argv[1:] else peers))
