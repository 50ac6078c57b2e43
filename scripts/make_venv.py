"""Make the virtual environment, or say in one line what is missing and how to get it."""

import os
import shutil
import subprocess
import sys

PACKAGE = "python{}.{}-venv".format(*sys.version_info)
"""Debian and Ubuntu keep venv in a package of its own, one for each version of Python."""


def main(target: str) -> int:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):
        print(f"Runwatch needs Python 3.11 or newer; {sys.executable} is {version}.")
        print("Point make at another one: make PYTHON=python3.12 demo")
        return 1
    print(f"Making {target} with Python {version} …", flush=True)
    if not _has_venv() and not _install_venv():
        print(f"Python's venv module is missing. On Debian and Ubuntu: apt-get install {PACKAGE}")
        return 1
    return subprocess.call([sys.executable, "-m", "venv", target])


def _has_venv() -> bool:
    probe = [sys.executable, "-c", "import venv, ensurepip"]
    return subprocess.call(probe, stderr=subprocess.DEVNULL) == 0


def _install_venv() -> bool:
    """Root may install the package; nobody is asked to."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print(f"Installing {PACKAGE} …", flush=True)
    subprocess.call(["apt-get", "update", "-qq"], stdout=subprocess.DEVNULL)
    install = ["apt-get", "install", "-y", "-qq", PACKAGE]
    return subprocess.call(install, stdout=subprocess.DEVNULL) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
