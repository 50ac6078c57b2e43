"""The limits of a capture are in one table, and nobody else spells them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch.record import capture_limits

SOURCE: Final = Path(capture_limits.__file__).parents[1]
PAGE: Final = Path(__file__).parents[3] / "web" / "src" / "pages" / "run" / "parts"
PATH: Final = (
    "head/features/captures", "head/outbox.py", "agent/errands", "sdk/profiling", "sdk/control.py",
    "record/captures.py", "record/commands.py", "record/control.py",
    "views/captures.py", "views/profiles.py",
    "capture/tracing", "cli/commands/capture.py",
)  # fmt: skip
OTHERS: Final = ("agent/errands/stacks.py", "agent/errands/dumps.py")
"""Of other features."""
A_LENGTH: Final = re.compile(r"_?(LONGEST|MOST)_")
"""How long a text or a list may be is no limit of a capture, whatever its number."""


def limits() -> dict[float, str]:
    table: dict[float, str] = {}
    for name, value in vars(capture_limits).items():
        numbers = value if isinstance(value, tuple) else (value,)
        table |= {each: name for each in numbers if isinstance(each, int | float)}
    return table


def spelled(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Numbers in a module, with their lines; a product such as 600 * 10**9 has both of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node.lineno, node.value


def lengths(tree: ast.Module) -> set[int]:
    """Lines that name a length."""
    named = (node for node in tree.body if isinstance(node, ast.AnnAssign))
    return {
        node.lineno
        for node in named
        if isinstance(node.target, ast.Name) and A_LENGTH.match(node.target.id)
    }


def modules() -> Iterator[Path]:
    for name in PATH:
        place = SOURCE / name
        assert place.exists(), name
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def test_the_table_has_numbers() -> None:
    assert {2_000, 600_000, 600.0, 10_000, 9012, 9999} <= limits().keys()


def test_no_limit_is_spelled_elsewhere_on_the_path() -> None:
    table = limits()
    found = []
    for module in modules():
        name = module.relative_to(SOURCE).as_posix()
        if name in OTHERS:
            continue
        tree = ast.parse(module.read_text())
        found += [
            f"{name}:{line} spells {number:g}: {table[number]} of record/capture_limits.py?"
            for line, number in spelled(tree)
            if number in table and line not in lengths(tree)
        ]
    assert found == []


def test_the_command_line_and_the_page_take_them_from_the_table() -> None:
    command = (SOURCE / "cli/commands/capture.py").read_text()
    assert "{DEFAULT_MS}" in command and "PROFILER_PORTS" in command
    panel = (PAGE / "CapturePanel.svelte").read_text()
    assert "CAPTURE_LIMITS" in panel
    assert not re.findall(r"\b(2000|600|600000|10000)\b", panel)
