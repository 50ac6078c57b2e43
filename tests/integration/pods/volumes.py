"""A pod's volumes, as folders of its node.

Those that are made of objects look as the kubelet makes them: the files are links into `..data`,
which is a link, too, so that all of them change at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch.kube import Thing, part, parts, text
from tests.integration.pods.objects import CannotBePlayed, File, Placed

_NOW: Final = "..2026_11_19"


def made(placed: Placed, root: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and place of each; those that are the pod's own are made in `folder`."""
    group = part(placed.spec, "securityContext").get("fsGroup")
    for volume in parts(placed.spec.get("volumes")):
        name = text(volume, "name")
        if "hostPath" in volume:
            yield name, _of_the_node(part(volume, "hostPath"), root)
            continue
        at = folder / name
        if claim := text(part(volume, "persistentVolumeClaim"), "claimName"):
            at = root / "claims" / claim
        at.mkdir(parents=True, exist_ok=True)
        at.chmod(0o777)
        if group is not None:
            os.chown(at, -1, group)
            at.chmod(0o2777)
        if (files := placed.files(volume)) is not None:
            _fill(at, files, group)
        yield name, at


def _of_the_node(source: Thing, root: Path) -> Path:
    path, kind = root / text(source, "path").lstrip("/"), text(source, "type")
    if kind in ("Directory", "File", "Socket") and not path.exists():
        raise CannotBePlayed(f"hostPath type check failed: {path} is not a {kind.lower()}")
    if kind in ("DirectoryOrCreate", "") and not path.exists():
        path.mkdir(parents=True, mode=0o755)
    return path


def _fill(folder: Path, files: dict[str, File], group: int | None) -> None:
    (folder / "..data").symlink_to(_NOW)
    for path, file in files.items():
        at = folder / _NOW / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(file.words)
        at.chmod(file.mode | (0 if group is None else 0o440))
        if group is not None:
            os.chown(at, -1, group)
        first = path.partition("/")[0]
        if not (folder / first).is_symlink():
            (folder / first).symlink_to(f"..data/{first}")
