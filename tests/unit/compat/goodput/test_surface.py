"""The doors to ml-goodput-measurement's modules.  That they hold every name that both generations
of it have is in tests/unit/compat/test_originals.py.
"""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

MODULES = (
    "goodput",
    "goodput_utils",
    "goodput_cache",
    "goodput_elastic",
    "goodput_exclusion",
    "exclusion_utils",
    "checkpoint_badput_calculator",
    "gcp_metrics",
    "monitoring",
    "monitoring_elastic",
)


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
    with pytest.raises(AttributeError, match="record_everything"):
        _ = goodput.record_everything


def test_the_originals_inside_is_not_here() -> None:
    from runwatch.compat.goodput import goodput, monitoring
    from runwatch.compat.goodput.goodput_cache import GoodputCache

    assert not hasattr(goodput, "_CloudLogger")
    assert not hasattr(monitoring, "_run_with_timeout")
    assert not hasattr(GoodputCache("job"), "_job_start_time")
    assert goodput._JOB_NAME == "job_name"  # but the words of an entry are
