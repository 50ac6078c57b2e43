"""Ids as the original computes them: its users find their runs by these."""

from __future__ import annotations

import hashlib
import json

import pytest

from runwatch.compat.mldiagnostics.core.run_ids import IdentityError, identify_workload

GKE = {
    "GKE_DIAGON_IDENTIFIER": json.dumps(
        {
            "metadata.name": "train",
            "metadata.kind": "JobSet",
            "clustername": "projects/p/locations/l/clusters/c1",
            "namespace": "ns",
        }
    ),
    "GKE_DIAGON_METADATA": json.dumps({"creation-timestamp": "2026-01-02T03:04:05Z"}),
}
SLURM = {"SLURM_JOB_ID": "17"}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("environment", "run", "orchestrator"),
    [
        ({}, "run", "NONE"),
        ({"RUNWATCH_RUN_ID": "mine", **SLURM}, "mine", "CUSTOM"),
        ({"RUN_WORKLOAD_ID": "w1", **GKE}, sha("w1"), "CUSTOM"),
        (GKE, sha("c1_ns_JobSet_train_20260102-030405"), "GKE"),
        (SLURM, sha("slurm_17"), "SLURM"),
        (
            {**SLURM, "SLURM_CLUSTER_NAME": "big", "SLURM_JOB_START_TIME": "1767323045"},
            sha("big_17_20260102-030405"),
            "SLURM",
        ),
        ({"TORCHELASTIC_RUN_ID": "sweep-3"}, "run", "NONE"),
    ],
)
def test_the_workload_is_the_run(environment: dict[str, str], run: str, orchestrator: str) -> None:
    found = identify_workload("run", None, environment)
    assert (found.run, found.name, found.orchestrator) == (run, "run", orchestrator)


@pytest.mark.parametrize("environment", [{}, GKE, SLURM, {"RUNWATCH_RUN_ID": "mine"}])
def test_a_workload_id_that_is_given_comes_first(environment: dict[str, str]) -> None:
    found = identify_workload("run", "w2", environment)
    assert (found.run, found.orchestrator) == (sha("w2"), "CUSTOM")


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("GKE_DIAGON_IDENTIFIER", '{"namespace": "ns"}', "GKE_DIAGON_IDENTIFIER"),
        ("GKE_DIAGON_METADATA", '{"creation-timestamp": "yesterday"}', "GKE_DIAGON_METADATA"),
        ("GKE_DIAGON_METADATA", '{"creation-timestamp": "yesterdayZ"}', "GKE_DIAGON_METADATA"),
    ],
)
def test_a_malformed_variable_is_named(variable: str, value: str, named: str) -> None:
    with pytest.raises(IdentityError, match=named):
        identify_workload("n", None, {**GKE, variable: value})


@pytest.mark.parametrize("variable", ["GKE_DIAGON_IDENTIFIER", "GKE_DIAGON_METADATA"])
@pytest.mark.parametrize("value", ["{", "[]", "projects/p/clusters/c1"])
def test_a_variable_that_no_orchestrator_wrote_is_ignored(
    variable: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        found = identify_workload("n", None, {**GKE, variable: value})
        assert (found.run, found.orchestrator) == ("n", "NONE")
    assert [variable in line and "ignored" in line for line in caplog.messages] == [True]
