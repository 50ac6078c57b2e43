"""A real receiver of telemetry: Prometheus, as Debian has it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from runwatch.testing import until
from tests.integration.processes import end, free_port

PROMETHEUS: Final = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="no prometheus (apt-get install prometheus)"
)


class Prometheus:
    """It may be stopped, and started again with what it has."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()
        (root / "prometheus.yml").write_text("{}\n")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROMETHEUS), "--web.enable-remote-write-receiver",
                 f"--storage.tsdb.path={self._root / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self.port}",
                 f"--config.file={self._root / 'prometheus.yml'}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        until(self._is_ready, what="Prometheus")

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            end(self._process, signal.SIGTERM)
            self._process = None

    def samples(self, query: str) -> dict[str, list[tuple[float, str]]]:
        """All samples of the last hours, by their labels; staleness markers are not shown."""
        answer = self._query(f"{query}[6h]")
        return {_named(each["metric"]): [(t, v) for t, v in each["values"]] for each in answer}

    def now(self, query: str) -> dict[str, float]:
        return {_named(each["metric"]): float(each["value"][1]) for each in self._query(query)}

    def _query(self, query: str) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': query})}", timeout=100) as said:
            answer = json.load(said)
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])


def _named(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
