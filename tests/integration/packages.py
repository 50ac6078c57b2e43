"""Wheels written by hand, and fresh environments to install them into.  No index is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pip

from runwatch.cli.dropins.wheels import Wheel

ROOT: Final = Path(__file__).parents[2]
ORIGINALS: Final[dict[str, dict[str, Any]]] = json.loads(
    (ROOT / "tests" / "fixtures" / "dropin" / "originals.json").read_text()
)
"""Version, commands and files of the originals' wheels, as an index has them."""
THEIRS: Final = "WHOSE = 'theirs'\ndef main(): print(WHOSE)\napp = main\n"
"""What each of their files holds here."""


def wheel(
    name: str,
    version: str,
    needs: Sequence[str] = (),
    files: Sequence[str] = (),
    commands: Mapping[str, str] = MappingProxyType({}),
) -> Wheel:
    """One of others.  `files`: their paths; each holds THEIRS."""
    metadata = "".join(f"Requires-Dist: {need}\n" for need in needs)
    return Wheel(name, version, metadata, dict.fromkeys(files, THEIRS.encode()), commands)


def write_originals(folder: Path) -> None:
    """As an index has them, but for what is in their files and for what they need."""
    for name, about in ORIGINALS.items():
        version, files, commands = about["version"], about["files"], about["commands"]
        wheel(name, version, files=files, commands=commands).write(folder)


def write_needs_of(path: Path, folder: Path) -> None:
    """Names and versions of what it needs, with nothing inside: the SDK imports none of them."""
    with zipfile.ZipFile(path) as archive:
        [inside] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = message_from_string(archive.read(inside).decode())
    for need in about.get_all("Requires-Dist", ()):
        if ";" not in need:
            name, _, version = need.partition(">=")
            wheel(name, version or "1").write(folder)


def build_ours(folder: Path) -> tuple[Path, Path]:
    """The real wheels: of Runwatch, and of the drop-ins."""
    # Where the build backend is not installed, pip fetches it.
    isolated = ["--no-build-isolation"] if find_spec("hatchling") is not None else []
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *isolated]
    environment = dict(os.environ) | {"RUNWATCH_WEB": "off", "PYTHONPATH": ""}
    done = subprocess.run(
        [*pip_wheel, "-w", str(folder), str(ROOT), str(ROOT / "dropin")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    [runwatch], [dropin] = folder.glob("runwatch-*"), folder.glob("runwatch_dropin-*")
    return runwatch, dropin


class Place:
    """A virtual environment that finds wheels in one folder, and pip outside of it."""

    def __init__(self, root: Path, wheels: Path) -> None:
        if not root.exists():
            venv.create(root, symlinks=True, with_pip=False)
        self._begin(root, wheels)

    def _begin(self, root: Path, wheels: Path) -> None:
        self.root, self.wheels = root, wheels
        self.home, self.tools = root / "home", root / "tools"
        for folder in (self.home, self.tools):
            folder.mkdir(exist_ok=True)
        if not (self.tools / "pip").exists():
            (self.tools / "pip").symlink_to(Path(pip.__file__).parent)
        self.environment = {
            "PATH": f"{root / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(self.home),
            "RUNWATCH_DIR": str(self.home / "records"),
            "RUNWATCH_AGENT": "off",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "COLUMNS": "200",
        }

    def copy(self, root: Path) -> Place:
        """Another of the same content.  Only scripts still name this one's Python."""
        shutil.copytree(self.root, root, symlinks=True, copy_function=_link)
        other = object.__new__(Place)
        other._begin(root, self.wheels)
        return other

    @property
    def packages(self) -> Path:
        [folder] = self.root.glob("lib/python*/site-packages")
        return folder

    def run(self, *words: str, cwd: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "bin" / words[0]), *words[1:]],
            env=self.environment | more,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def done(self, *words: str, **more: str) -> str:
        """Its output; it worked."""
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def pip(self, *words: str) -> str:
        return self.done("python", "-m", "pip", *words, PYTHONPATH=str(self.tools))

    def runwatch(self, *words: str, **more: str) -> str:
        return self.done("python", "-m", "runwatch", *words, **more)

    def dropin(self, *words: str) -> str:
        """`runwatch dropin`, with a pip."""
        return self.runwatch("dropin", *words, PYTHONPATH=str(self.tools))


def _link(source: str, target: str) -> None:
    """Installers replace files and change none, so copies may share them."""
    os.link(source, target, follow_symlinks=False)
