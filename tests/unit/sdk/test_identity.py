from __future__ import annotations

import hashlib
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from runwatch.sdk.guard import tally
from runwatch.sdk.identity import (
    Identity,
    IdentityError,
    display_name,
    identify,
    queued_at_ns,
    slug,
)

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


def who(name: object = "run", **environment: str) -> Identity:
    return identify(name, environment=environment, modules={})


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_alone_a_process_is_rank_0_of_1_and_the_name_is_the_id() -> None:
    assert who("llama-70b") == Identity(
        run=slug("llama-70b"), name="llama-70b", rank=0, local_rank=0, world_size=1,
        attempt_key="", orchestrator="NONE",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["llama-70b", "a.b_c-1", "x" * 64])
def test_a_safe_name_is_its_own_id(name: str) -> None:
    assert slug(name) == name


def test_names_that_look_alike_have_different_ids() -> None:
    names = ["Run", "run", "run ", "r/un", "r un", "..", ".", "x" * 65, "x" * 66, "é", "è", ""]
    ids = {slug(name) for name in names}
    assert len(ids) == len(names)
    assert all(len(i) <= 64 and "/" not in i and i[0] not in ".-" for i in ids)


def test_display_names_are_clean_and_said_once() -> None:
    assert display_name("a\0b\nc") == "a b c"
    assert display_name("x" * 500) == "x" * 200
    assert display_name("") == "run"
    assert tally.counts == {"run name": 3}


@pytest.mark.parametrize(
    ("environment", "run"),
    [
        ({"RUNWATCH_RUN_ID": "mine", "SLURM_JOB_ID": "1"}, "mine"),
        ({"RUN_WORKLOAD_ID": "w1", **GKE}, sha("w1")),
        (GKE, sha("c1_ns_JobSet_train_20260102-030405")),
        ({"SLURM_JOB_ID": "17"}, sha("slurm_17")),
        (
            {
                "SLURM_JOB_ID": "17",
                "SLURM_CLUSTER_NAME": "big",
                "SLURM_JOB_START_TIME": "1767323045",
            },
            sha("big_17_20260102-030405"),
        ),
        ({"TORCHELASTIC_RUN_ID": "sweep-3"}, "sweep-3"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "run"),
        ({"TORCHELASTIC_RUN_ID": "0c1d2e3f-1111-2222-3333-444455556666"}, "run"),
    ],
)
def test_the_run_id_comes_from_whoever_started_us(environment: dict[str, str], run: str) -> None:
    assert who(**environment).run == run


def test_an_explicit_id_comes_first() -> None:
    assert identify("n", run_id="Given", environment=GKE, modules={}).run == slug("Given")


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("GKE_DIAGON_IDENTIFIER", "{", "GKE_DIAGON_IDENTIFIER"),
        ("GKE_DIAGON_IDENTIFIER", '{"namespace": "ns"}', "GKE_DIAGON_IDENTIFIER"),
        ("GKE_DIAGON_METADATA", "[]", "GKE_DIAGON_METADATA"),
        ("GKE_DIAGON_METADATA", '{"creation-timestamp": "yesterday"}', "GKE_DIAGON_METADATA"),
    ],
)
def test_a_malformed_variable_is_named(variable: str, value: str, named: str) -> None:
    environment = {**GKE, variable: value}
    with pytest.raises(IdentityError, match=named):
        identify("n", environment=environment, modules={}, strict=True)
    assert identify("n", environment=environment, modules={}).run == "n"
    assert tally.counts == {"run id": 1}


@pytest.mark.parametrize(
    ("environment", "rank", "local", "world"),
    [
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "2",
             "NODE_RANK": "2"}, 5, 1, 8,
        ),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "3"}, 3, 3, 4),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 0, 2),
        ({"PMI_RANK": "1"}, 1, 0, 2),
        ({"JOB_COMPLETION_INDEX": "6"}, 6, 0, 7),
        ({"RANK": "x", "NODE_RANK": "2"}, 2, 0, 3),
        ({"RANK": "-1"}, 0, 0, 1),
    ],
)  # fmt: skip
def test_ranks(environment: dict[str, str], rank: int, local: int, world: int) -> None:
    found = who(**environment)
    assert (found.rank, found.local_rank, found.world_size) == (rank, local, world)


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"RUNWATCH_ATTEMPT": "a2", "SLURM_JOB_ID": "9"}, "a2"),
        ({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}, "slurm-9.2"),
        (
            {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"},
            "torchrun-none.1",
        ),
        ({"JOBSET_RESTART_ATTEMPT": "4"}, "jobset-4"),
    ],
)
def test_attempts(environment: dict[str, str], key: str) -> None:
    assert who(**environment).attempt_key == key


def test_an_initialised_framework_knows_best() -> None:
    state = SimpleNamespace(client=object(), process_id=3, num_processes=4)
    modules: dict[str, Any] = {"jax._src.distributed": SimpleNamespace(global_state=state)}
    found = identify("n", environment={"RANK": "0"}, modules=cast(dict[str, ModuleType], modules))
    assert (found.rank, found.world_size) == (3, 4)


def test_torch_that_is_imported_but_not_initialised_says_nothing() -> None:
    pytest.importorskip("torch.distributed")
    found = identify("n", environment={"RANK": "2"}, modules=sys.modules)
    assert found.rank == 2


# ── since when it was wanted ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1700000000", 1_700_000_000 * 10**9),
        (" 1700000000.25 ", 1_700_000_000_250_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000 * 10**9),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000_000),
    ],
)
def test_the_script_that_submits_says_when(said: str, expected: int) -> None:
    assert queued_at_ns({"RUNWATCH_QUEUED_AT": said, **GKE}) == expected
    assert tally.counts == {}


@pytest.mark.parametrize("said", ["soon", "-5", "2023-11-14T22:13:20", "2023-99-01T00:00:00Z"])
def test_a_queue_time_that_is_none_is_counted_and_left_out(said: str) -> None:
    assert queued_at_ns({"RUNWATCH_QUEUED_AT": said}) is None
    assert tally.counts == {"queue time": 1}


def test_a_workload_on_gke_was_wanted_when_it_was_created() -> None:
    assert queued_at_ns(GKE) == 1_767_323_045 * 10**9
    assert queued_at_ns(GKE | {"GKE_DIAGON_METADATA": "{"}) is None
    assert queued_at_ns(GKE | {"GKE_DIAGON_METADATA": "{}"}) is None


def test_where_nobody_tells_it_is_not_known() -> None:
    assert queued_at_ns({}) is None
    assert queued_at_ns({"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "1700000000"}) is None
