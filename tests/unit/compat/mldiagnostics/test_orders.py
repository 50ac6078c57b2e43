"""`machinelearning_run` called by place, as 1.0.0 and as 1.0.10 have their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.mldiagnostics.api.mlrun import machinelearning_run
from runwatch.compat.mldiagnostics.custom_types.exceptions import MLRunConfigurationError

FIRST = ("n", "g", {"lr": 1}, "gs://b/x")
URL = "http://head:8090"


@pytest.mark.parametrize(
    ("more", "by_name", "expected"),
    [
        # 1.0.0: project, region, interval, on_demand_xprof, environment
        (("my-project",), {}, {"project": "my-project"}),
        (("my-project", "europe-west4"), {}, {"project": "my-project", "location": "europe-west4"}),
        (("my-project", None), {}, {"project": "my-project", "location": "us-central1"}),
        (("example.com:old-project",), {}, {"project": "example.com:old-project"}),
        ((None, "europe-west4"), {}, {"location": "europe-west4"}),
        ((None, None, 5.0), {}, {"location": "us-central1"}),
        (("p", "us-east1", 5, False, "staging"), {}, {"project": "p", "environment": "staging"}),
        (("p", "us-east1", -1), {"environment": "autopush"}, {"environment": "autopush"}),
        (("p",), {"region": "us-east1"}, {"project": "p", "location": "us-east1"}),
        # 1.0.10: base_url, cluster_id, project, region, interval, on_demand_xprof, …
        ((URL,), {}, {"control_plane_url": URL, "project": ""}),
        ((URL, "c1"), {}, {"control_plane_url": URL, "cluster_id": "c1"}),
        ((URL, "us-central1"), {}, {"control_plane_url": URL, "cluster_id": "us-central1"}),
        ((None, "c1"), {}, {"control_plane_url": None, "cluster_id": "c1"}),
        ((None, None, "p", "us-east1"), {}, {"project": "p", "location": "us-east1"}),
        ((URL, None, "p", "us-east1", 5.0, False, True, "staging"), {},
         {"control_plane_url": URL, "log_system_metrics": True, "environment": "staging"}),
        ((None, "c1"), {"project": "p"}, {"cluster_id": "c1", "project": "p"}),
        # A fifth that is no URL is an address only if the project has another place.
        (("head:8090",), {"project": "p"}, {"control_plane_url": "head:8090", "project": "p"}),
        (("head:8090", "c1", "p"), {}, {"control_plane_url": "head:8090", "cluster_id": "c1"}),
        # A cluster that is called like a region cannot be told from one; nor does it matter much.
        ((None, "us-east1"), {}, {"cluster_id": None, "location": "us-east1"}),
    ],
)  # fmt: skip
def test_places_mean_what_they_meant(
    more: tuple[Any, ...], by_name: dict[str, Any], expected: dict[str, Any]
) -> None:
    run: Any = machinelearning_run(*FIRST, *more, **by_name)
    assert (run.display_name, run.run_group, run.gcs_path) == ("n", "g", "gs://b/x")
    assert {name: getattr(run, name) for name in expected} == expected


def test_a_zone_in_the_regions_place_is_an_error_in_either() -> None:
    with pytest.raises(ValueError, match="us-central1-a"):
        machinelearning_run(*FIRST, "my-project", "us-central1-a")
    with pytest.raises(ValueError, match="us-central1-a"):
        machinelearning_run(*FIRST, None, None, "my-project", "us-central1-a")


@pytest.mark.parametrize("path", [123, b"gs://b", ["gs://b"]])
def test_a_path_that_is_none_is_named(path: Any) -> None:
    with pytest.raises(MLRunConfigurationError, match=r"gcs_path .*, not ") as raised:
        machinelearning_run("n", gcs_path=path)
    assert repr(path) in str(raised.value)


def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    run = machinelearning_run("n", gcs_path=tmp_path)  # type: ignore[arg-type]
    assert run.gcs_path == str(tmp_path)
