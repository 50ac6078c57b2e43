"""The `bench` group of pyproject.toml as a requirements file, for an older pip."""

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"

if __name__ == "__main__":
    print("\n".join(tomllib.loads(PROJECT.read_text())["dependency-groups"]["bench"]))
