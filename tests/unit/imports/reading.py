"""Import into a directory as the command does, and read back what is stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.cli.__main__ import main
from runwatch.cli.local_source import LocalSource

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "imports"
Values = dict[str, list[tuple[int | None, str]]]
"""Metric → step and value of each point, in order of time and step."""


class Bench:
    """A Runwatch directory, and the command."""

    def __init__(self, place: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self.root = place / "rw"
        self._capture = capture

    def copy(self, name: str) -> Path:
        """A recorded log, to be changed."""
        target = self.place / "log" / name
        shutil.copytree(FIXTURES / name, target)
        return target

    def bring(self, *words: str | Path) -> list[dict[str, Any]]:
        """Import; what the report says of each run."""
        assert self.command("import", *words, "--json") == 0, self.err
        runs: list[dict[str, Any]] = json.loads(self.out)["runs"]
        return runs

    def command(self, *words: str | Path) -> int:
        self._capture.readouterr()
        code = main([*map(str, words), "--dir", str(self.root)])
        said = self._capture.readouterr()
        self.out, self.err = said.out, said.err
        return code

    def get(self, *paths: str) -> list[Any]:
        """Answers of the page's API about this directory."""
        head = LocalSource(self.root)
        try:
            return [head.get(path) for path in paths]
        finally:
            head.close()

    def runs(self) -> dict[str, Any]:
        return {run["name"]: run for run in self.get("/runs")[0]["runs"]}

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Every point of every run, as `runwatch export` writes it."""
        head = LocalSource(self.root)
        try:
            runs = {run["name"]: run["run"] for run in head.get("/runs")["runs"]}
            return {
                name: json.loads(b"".join(head.stream(f"/runs/{run}/export", format="json")))
                for name, run in runs.items()
            }
        finally:
            head.close()

    def values(self) -> dict[str, Values]:
        return {name: by_metric(rows) for name, rows in self.rows().items()}


def by_metric(rows: Sequence[dict[str, Any]]) -> Values:
    found: Values = {}
    for row in sorted(rows, key=lambda row: (row["time"], row["step"] or 0)):
        value = row["value"]
        found.setdefault(row["metric"], []).append((row["step"], repr(float(value))))
    return found


def truth(told: dict[str, list[list[Any]]]) -> Values:
    """What the other tool's own reader says."""
    return {
        metric: [(step, value) for step, _, value in sorted(points, key=lambda p: (p[1], p[0]))]
        for metric, points in told.items()
    }


def recorded(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return told
