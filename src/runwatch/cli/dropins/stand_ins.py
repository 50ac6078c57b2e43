"""Stand-ins: distributions with an original's name and version, and nothing in them.

pip then takes what needs the original as satisfied, and does not install it beside ours.  A
stand-in needs `runwatch-dropin`, so that `pip check` complains if that goes.  Its version is the
original's to the letter: programs take versions apart (`1.0.10+x` is no three numbers), and what
`pip freeze` writes can be installed elsewhere.  `pip show` tells which of the two it is.
"""

from __future__ import annotations

from typing import Final

from runwatch.cli.dropins.originals import DROPIN, KEYWORD, Original
from runwatch.cli.dropins.wheels import Wheel

BUILD: Final = "1runwatch"
"""Higher than none, as the original has: a folder of wheels may hold both."""
_METADATA: Final = """\
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


def stand_in(original: Original) -> Wheel:
    name = original.distribution
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in original.extras)
    metadata = _METADATA.format(name=name, keyword=KEYWORD, dropin=DROPIN, extras=extras)
    return Wheel(name, original.version, metadata, build=BUILD)
