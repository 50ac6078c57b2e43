"""Stand-ins: distributions with an original's name and version, and nothing in them.

pip then takes what needs the original as satisfied, and does not install it beside ours.  A
stand-in needs `runwatch-dropin`, so that `pip check` complains if that goes.  Its version is the
original's to the letter: programs take versions apart (`1.0.10+x` is no three numbers), and what
`pip freeze` writes can be installed elsewhere.  `pip show` tells which of the two it is.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Final

from runwatch._version import __version__
from runwatch.cli.dropins.originals import DROPIN, KEYWORD, Original

BUILD: Final = "1runwatch"
"""Where a folder of wheels holds the original of this version too, installers take the wheel with
the highest build: ours."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""As the time of every file: the same stand-in is the same bytes."""

_METADATA: Final = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Stand-in for {name}: the drop-in of Runwatch answers to its names
Keywords: {keyword}
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: {dropin}
{extras}
There is no code in this distribution. It tells installers that what needs {name} has it:
`{dropin}` provides the same names. `runwatch dropin uninstall` removes both;
`pip install --force-reinstall {name}` puts the original in its place.
"""
_WHEEL: Final = """\
Wheel-Version: 1.0
Generator: runwatch {generator}
Root-Is-Purelib: true
Tag: py3-none-any
Build: {build}
"""


def write_wheel(original: Original, folder: Path) -> Path:
    name = original.distribution.replace("-", "_")
    about = f"{name}-{original.version}.dist-info"
    contents = {
        f"{about}/METADATA": _METADATA.format(
            name=original.distribution,
            version=original.version,
            keyword=KEYWORD,
            dropin=DROPIN,
            extras="".join(f"Provides-Extra: {extra}\n" for extra in original.extras),
        ),
        f"{about}/WHEEL": _WHEEL.format(generator=__version__, build=BUILD),
    }
    record = "".join(_recorded(path, text) for path, text in contents.items())
    contents[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n"
    path = folder / f"{name}-{original.version}-{BUILD}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, text in contents.items():
            wheel.writestr(zipfile.ZipInfo(inside, _EPOCH), text)
    return path


def _recorded(path: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(text.encode())}\n"
