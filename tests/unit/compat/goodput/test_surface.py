"""Everything that ml-goodput-measurement offers is there, in both generations of it.

tests/fixtures/goodput/original-api.json was recorded from the releases 0.0.8 and 0.2.3 with
describe_api.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.unit.compat.goodput.describe_api import MODULES, Description, parameters

FIXTURE = Path(__file__).parents[3] / "fixtures" / "goodput" / "original-api.json"
RELEASES: dict[str, dict[str, Description]] = json.loads(FIXTURE.read_text())
NEWEST = "0.2.3"

# What 0.2.3 itself has renamed or moved since 0.0.8: there its own shape counts.
MOVED = {
    ("goodput_utils", "GoodputInfo"),
    ("goodput_utils", "GCPOptions"),
    ("goodput_cache", "GoodputCache.update_cached_entries"),
    ("goodput_cache", "GoodputCache.get_last_entry_timestamp"),
}


def names() -> Iterator[Any]:
    for release, modules in RELEASES.items():
        for module, found in modules.items():
            for name, description in found.items():
                yield pytest.param(
                    release, module, name, description, id=f"{release}-{module}-{name}"
                )


def test_the_recording_is_whole() -> None:
    assert sorted(RELEASES) == ["0.0.8", NEWEST]
    assert sorted(RELEASES[NEWEST]) == sorted(MODULES)
    recorder = RELEASES[NEWEST]["goodput"]["GoodputRecorder"]
    assert len(recorder["methods"]) == 13
    assert (
        "start_goodput_interval_uploader"
        in (RELEASES["0.0.8"]["monitoring"]["GoodputMonitor"]["methods"])
    )


@pytest.mark.parametrize(("release", "module", "name", "description"), list(names()))
def test_it_is_there_and_takes_the_same(
    release: str, module: str, name: str, description: Description
) -> None:
    ours = getattr(import_module(f"runwatch.compat.goodput.{module}"), name)
    if "value" in description:
        assert ours == description["value"]
    elif "module" in description:
        assert ours is import_module(f"runwatch.compat.goodput.{description['module']}")
    elif "is" in description:
        home, _, same = description["is"].partition(".")
        assert ours is getattr(import_module(f"runwatch.compat.goodput.{home}"), same)
    elif "members" in description:
        members = {member.name: member.value for member in ours}
        assert members.keys() >= description["members"].keys()
        if release == NEWEST:
            assert members == description["members"]
    elif "keys" in description:
        assert set(ours.__annotations__) >= set(description["keys"])
    else:
        compare_callables(release, module, name, description, ours)


def compare_callables(
    release: str, module: str, name: str, description: Description, ours: Any
) -> None:
    older = release != NEWEST
    if not (older and (module, name) in MOVED):
        check_parameters(description["parameters"], ours, name, older)
        if "fields" in description:
            fields = [field.name for field in dataclasses.fields(ours)]
            assert fields[: len(description["fields"])] == description["fields"]
    for method, expected in description.get("methods", {}).items():
        if not (older and (module, f"{name}.{method}") in MOVED):
            check_parameters(expected, getattr(ours, method), f"{name}.{method}", older)


def check_parameters(expected: list[list[str]], function: Any, what: str, older: bool) -> None:
    """Every call that the original takes means the same here.

    What ours has besides is optional.  What the original wants, ours may have a default for; and
    of a release since which 0.2.3 has put in parameters, the names count, not the places.
    """
    ours = {name: (place, kind, default) for place, (name, kind, default) in
            enumerate(parameters(function))}  # fmt: skip
    for place, (name, kind, default) in enumerate(expected):
        assert name in ours, f"{what} has no parameter {name!r}"
        our_place, our_kind, our_default = ours[name]
        if kind == "POSITIONAL_OR_KEYWORD" and not older:
            assert (our_place, our_kind) == (place, kind), f"{what}({name}) stands elsewhere"
        if default:
            assert our_default == default, f"{what}({name}) has another default"
    asked = {name for name, _, _ in expected}
    for name, (_, kind, default) in ours.items():
        if name not in asked and not kind.startswith("VAR_"):
            assert default, f"{what} wants {name!r}, which the original does not know"


def test_recorders_are_called_in_the_originals_order() -> None:
    from runwatch.compat.goodput.log.recorder import GoodputRecorder

    order = list(inspect.signature(GoodputRecorder).parameters)
    assert order[:4] == ["job_name", "logger_name", "logging_enabled", "cloud_logger"]


@pytest.mark.parametrize("module", MODULES)
def test_the_door_leads_to_every_module(module: str) -> None:
    from runwatch.compat import goodput

    assert getattr(goodput, module) is import_module(f"runwatch.compat.goodput.{module}")


def test_the_goodput_module_lists_what_it_has() -> None:
    from runwatch.compat.goodput import goodput

    assert set(goodput.__all__) <= set(dir(goodput))
    assert set(RELEASES[NEWEST]["goodput"]) <= set(goodput.__all__)
    with pytest.raises(AttributeError, match="record_everything"):
        _ = goodput.record_everything
