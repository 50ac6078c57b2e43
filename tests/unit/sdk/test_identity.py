from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from runwatch.sdk.guard import tally
from runwatch.sdk.identity import (
    Identity,
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


SCHEDULED: list[tuple[dict[str, str], str]] = [
    # (what is set, how a run without a name is called)
    ({"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "lr-sweep"}, "lr-sweep"),
    ({"SLURM_JOB_ID": "77"}, "slurm-77"),
    (
        {"SLURM_JOB_ID": "79", "SLURM_JOB_NAME": "sweep", "SLURM_ARRAY_JOB_ID": "77",
         "SLURM_ARRAY_TASK_ID": "2"}, "sweep-2",
    ),
    ({"SLURM_JOB_ID": "79", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2"}, "slurm-77-2"),
    ({"JOBSET_NAME": "maxtext", "JOBSET_RESTART_ATTEMPT": "1"}, "maxtext"),
    ({"LWS_LEADER_ADDRESS": "vllm-0.vllm.default"}, "vllm-0"),
    (GKE, "train"),
    ({"MASTER_ADDR": "bert-master-0", "RANK": "0"}, "bert"),
    ({"PET_MASTER_ADDR": "bert-node-0-0.bert", "PET_NNODES": "2"}, "bert"),
    ({"RAY_JOB_SUBMISSION_ID": "nightly", "RAY_JOB_ID": "02000000"}, "nightly"),
    ({"RAY_JOB_SUBMISSION_ID": "raysubmit_x", "RAY_JOB_ID": "02000000"}, "ray-02000000"),
    ({"RAY_CLUSTER_NAME": "tune-abc12", "RAY_JOB_ID": "01000000"}, "tune-abc12"),
    ({"TORCHELASTIC_RUN_ID": "sweep-3"}, "sweep-3"),
    ({"TORCHELASTIC_RUN_ID": "456"}, "torchrun-456"),
]  # fmt: skip
SILENT: list[dict[str, str]] = [
    {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "interactive"},
    {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "bash"},
    {"SLURM_JOB_NAME": "left-over"},
    {"TORCHELASTIC_RUN_ID": "none"},
    {"TORCHELASTIC_RUN_ID": ""},
    {"TORCHELASTIC_RUN_ID": "0c1d2e3f-1111-2222-3333-444455556666"},
    {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
    {"GKE_DIAGON_IDENTIFIER": "{"},
    {"GKE_DIAGON_IDENTIFIER": '{"metadata.name": 7}'},
    {"RUNWATCH_NAME": "  "},
]


@pytest.mark.parametrize(("environment", "name"), SCHEDULED)
def test_the_scheduler_names_a_run_only_where_the_program_does_not(
    environment: dict[str, str], name: str
) -> None:
    assert who("mine", **environment).run == who("mine", **environment).name == "mine"
    unnamed = who(None, **environment)
    assert (unnamed.run, unnamed.name) == (slug(name), name)
    assert who(None, RUNWATCH_NAME="wanted", **environment).name == "wanted"
    assert who("mine", RUNWATCH_NAME="wanted", **environment).name == "mine"


@pytest.mark.parametrize("environment", SILENT)
def test_where_nobody_names_it_a_run_is_called_as_its_script_is(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/jobs/train_llama.py", "--lr", "1"])
    assert who(None, **environment).name == "train_llama"
    assert who("run", **environment).run == "run"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert who(None, **environment).name == "c"


@pytest.mark.parametrize("environment", [{}, GKE, {"SLURM_JOB_ID": "1"}])
def test_an_id_replaces_the_name(environment: dict[str, str]) -> None:
    given = identify("n", run_id="Given", environment=environment, modules={})
    assert (given.run, given.name, given.orchestrator) == (slug("Given"), "n", "CUSTOM")
    set_for_all = who("n", RUNWATCH_RUN_ID="mine", **environment)
    assert (set_for_all.run, set_for_all.name) == ("mine", "n")
    environment = {**environment, "RUNWATCH_RUN_ID": "mine"}
    assert identify("n", run_id="given", environment=environment, modules={}).run == "given"


@pytest.mark.parametrize(
    ("environment", "found"),
    [({}, "NONE"), ({"SLURM_JOB_ID": "1"}, "SLURM"), ({"SLURM_JOB_ID": "1", **GKE}, "GKE")],
)
def test_who_started_the_process(environment: dict[str, str], found: str) -> None:
    assert who(**environment).orchestrator == found


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
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, 0, 0, 1),  # in `salloc`, without `srun`
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "4"}, 0, 0, 2),
        ({"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2"}, 1, 0, 2),
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
        ({"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "3"}, "slurm-9.0/3"),
        ({"TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "1"}, "torchrun-j.1"),
        ({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}, ""),
        ({"TORCHELASTIC_RUN_ID": "", "TORCHELASTIC_RESTART_COUNT": "1"}, ""),
        ({"JOBSET_RESTART_ATTEMPT": "4"}, "jobset-4"),
        ({"JOBSET_RESTART_ATTEMPT": "4", "JOBSET_NAME": "x"}, "jobset-x.4"),
        ({"LWS_LEADER_ADDRESS": "x-0.x.ns"}, "lws-x-0.x.ns"),
        ({"PMIX_NAMESPACE": "prterun-n1-77@1", "PMIX_RANK": "1"}, "mpi-prterun-n1-77@1"),
        ({"RAY_JOB_ID": "01000000"}, "ray-01000000"),
        ({"RAY_JOB_ID": "01000000", "RAY_CLUSTER_NAME": "c"}, "ray-c/01000000"),
        ({"RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}, "master-n1:29500"),
        (
            {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RUNWATCH_HOST": "h"},
            "master-h:1",
        ),
        (
            {
                "TORCHELASTIC_RUN_ID": "none",
                "RANK": "1",
                "MASTER_ADDR": "n1",
                "MASTER_PORT": "29500",
            },
            "master-n1:29500",
        ),
        ({"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}, ""),
        ({}, ""),
    ],
)
def test_who_was_started_together(environment: dict[str, str], key: str) -> None:
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


CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}, (0, 3)),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}, (2, 3)),
        ({"cluster": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}, (1, 2)),
        ({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}}, (0, 1)),
        ({"cluster": {"worker": 3}, "task": {"type": "worker", "index": 4}}, (4, 5)),
        ({"cluster": CLUSTER, "task": {"type": ["worker"], "index": 1}}, (0, 1)),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": "1"}}, (0, 1)),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": -1}}, (0, 1)),
        ({"cluster": CLUSTER}, (0, 1)),
        ([], (0, 1)),
    ],
)
def test_the_rank_of_a_worker_of_tensorflow(config: object, expected: tuple[int, int]) -> None:
    found = who(TF_CONFIG=json.dumps(config))
    assert (found.rank, found.world_size) == expected
    assert tally.counts == {}


def test_a_rank_comes_before_what_tensorflow_says() -> None:
    config = json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})
    found = who(TF_CONFIG=config, RANK="0", WORLD_SIZE="2")
    assert (found.rank, found.world_size) == (0, 2)


def test_the_rank_of_a_worker_of_ray() -> None:
    context = SimpleNamespace(get_world_rank=lambda: 3, get_world_size=lambda: 4)
    module: Any = SimpleNamespace(_train_context=context)
    name = "ray.train.v2._internal.execution.context"
    found = identify("run", environment={}, modules={name: module})
    assert (found.rank, found.world_size) == (3, 4)
    module._train_context = None  # a driver has it imported, too
    assert identify("run", environment={}, modules={name: module}).world_size == 1
