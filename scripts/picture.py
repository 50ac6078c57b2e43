"""Make docs/images/demo.svg from a real `runwatch demo`."""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", "demo", "--no-serve", "--dir", folder],
            env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": "92"},
            capture_output=True,
            text=True,
            check=True,
        )
    told = done.stdout.replace(folder, "~/.runwatch/demo")  # where it would be by itself
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ make demo\n" + told))
    svg = console.export_svg(title="make demo")
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)  # no request to any outside host
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(svg)
    print(f"Wrote {TARGET.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
