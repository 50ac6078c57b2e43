"""Directories that several users share, for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Cluster
from tests.integration.strangers import everybodys


@pytest.fixture
def shared() -> Iterator[Path]:
    with everybodys() as root:
        yield root


@pytest.fixture
def shared_cluster(tmp_path: Path, shared: Path) -> Iterator[Cluster]:
    """Its node's directory is everybody's."""
    made = Cluster(tmp_path)
    made.node_root = shared
    yield made
    made.close()
