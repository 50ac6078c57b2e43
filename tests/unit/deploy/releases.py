"""The chart as `helm template` writes it with each set of values in its folder `ci`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import yaml

from tests.cluster.chart import CHART, templated

Thing = dict[str, Any]
SETS: Final = sorted(
    path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")
)
PART: Final = "app.kubernetes.io/component"


class Run(NamedTuple):
    """A pod as something makes it."""

    owner: Thing
    meta: Thing
    spec: Thing

    @property
    def part(self) -> str:
        return str(self.meta["labels"][PART])

    def containers(self) -> list[Thing]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]


@dataclass(frozen=True)
class Release:
    things: tuple[Thing, ...]

    def of(self, *kinds: str) -> list[Thing]:
        return [thing for thing in self.things if thing["kind"] in kinds]

    def runs(self) -> Iterator[Run]:
        for thing in self.of("Deployment", "StatefulSet", "DaemonSet"):
            template = thing["spec"]["template"]
            yield Run(thing, template["metadata"], template["spec"])
        for thing in self.of("Pod"):
            yield Run(thing, thing["metadata"], thing["spec"])

    def run(self, part: str) -> Run:
        [run] = [run for run in self.runs() if run.part == part]
        return run


def values_of(name: str) -> Thing:
    return yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()) or {}


def release(name: str) -> Release:
    """With one of SETS."""
    return with_values(**values_of(name))


def with_values(**values: Any) -> Release:
    return _rendered(json.dumps(values))


@cache
def _rendered(values: str) -> Release:
    done = templated(json.loads(values))
    assert done.returncode == 0, done.stderr
    return Release(read(done.stdout))


def read(text: str) -> tuple[Thing, ...]:
    return tuple(thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing)
