"""How loud an incident is, by the one table."""

from __future__ import annotations

import pytest

from runwatch.views.pace import Limits
from runwatch.views.severity import Bearing, next_rise_ns, severity

SECOND = 1_000_000_000
LIMITS = Limits()


@pytest.mark.parametrize(
    ("bearing", "loud"),
    [
        ("stuck", {0: "warning", 59: "warning", 60: "incident"}),
        ("unsure", {0: "note", 59: "note", 60: "warning", 600: "incident"}),
        ("busy", {0: "note", 599: "note", 600: "warning", 1800: "incident"}),
        ("idle", {0: "note", 10**6: "note"}),
    ],
)
def test_it_rises_with_time(bearing: Bearing, loud: dict[int, str]) -> None:
    found = {s: severity(bearing, s * SECOND, LIMITS) for s in loud}
    assert found == loud


def test_when_it_becomes_louder_is_known_before() -> None:
    assert next_rise_ns("stuck", 10 * SECOND, LIMITS) == 50 * SECOND
    assert next_rise_ns("unsure", 0, LIMITS) == 60 * SECOND
    assert next_rise_ns("unsure", 60 * SECOND, LIMITS) == 540 * SECOND
    assert next_rise_ns("busy", 1800 * SECOND, LIMITS) is None
    assert next_rise_ns("idle", 0, LIMITS) is None


def test_the_table_scales_with_the_limits() -> None:
    quick = Limits(floor_seconds=1.5, doubt_seconds=9.0, patience_seconds=90.0)
    assert severity("unsure", 9 * SECOND, quick) == "warning"
    assert severity("busy", 89 * SECOND, quick) == "note"
