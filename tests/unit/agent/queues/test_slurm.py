"""What scontrol and sacct print, as documented, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.agent.queues import base
from runwatch.agent.queues.base import Job, NoAnswer, Waited
from runwatch.agent.queues.slurm import Slurm, by_sacct, by_scontrol
from tests.integration.standins import StandIns

SECOND = 10**9
SUBMIT, ELIGIBLE, START = 1_633_590_887, 1_633_590_900, 1_633_590_926


def line(
    number: int = 51, more: str = "", *, name: str = "train", restarts: int = 0, **times: object
) -> str:
    """One job, as `scontrol show job -o` writes it (Slurm 20.11 to 24.05), times in seconds."""
    at = {"submit": SUBMIT, "eligible": ELIGIBLE, "start": START} | times
    return (
        f"JobId={number} {more}JobName={name} UserId=ada(33646) GroupId=users(25200) MCS_label=N/A "
        "Priority=124370 Nice=0 Account=lab QOS=normal JobState=RUNNING Reason=None "
        f"Dependency=(null) Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0 "
        "RunTime=00:01:34 TimeLimit=00:15:00 TimeMin=N/A "
        f"SubmitTime={at['submit']} EligibleTime={at['eligible']} AccrueTime={at['submit']} "
        f"StartTime={at['start']} EndTime=1633591826 Deadline=N/A PreemptEligibleTime={START} "
        "PreemptTime=None SuspendTime=None SecsPreSuspend=0 LastSchedEval=1633590926 "
        "Scheduler=Main Partition=gpu AllocNode:Sid=login01:58040 ReqNodeList=(null) "
        "ExcNodeList=(null) NodeList=node06 BatchHost=node06 NumNodes=1 NumCPUs=4 NumTasks=1 "
        "CPUs/Task=1 ReqB:S:C:T=0:0:*:* Comment=again SubmitTime=1 EligibleTime=2 x StartTime=3 \n"
    )


TOLD = Waited(ELIGIBLE * SECOND, START * SECOND)


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"SLURM_JOB_ID": "51"}, Job("51", "0")),
        ({"SLURM_JOB_ID": "51", "SLURM_RESTART_COUNT": "2"}, Job("51", "2")),
        ({"SLURM_JOB_ID": "53", "SLURM_ARRAY_JOB_ID": "51"}, Job("53", "0")),
        ({"SLURM_JOB_ID": "51; rm -r ."}, None),
        ({"SLURM_JOB_ID": "-a"}, None),
        ({}, None),
    ],
)
def test_a_job_is_known_by_its_environment(environment: dict[str, str], job: Job | None) -> None:
    assert Slurm().job(environment, Path("/")) == job


def test_a_queue_begins_when_the_job_could_start() -> None:
    job = Job("51", "0")
    assert by_scontrol(line(), job) == TOLD
    assert by_scontrol(line(eligible="Unknown"), job) == Waited(SUBMIT * SECOND, START * SECOND)
    assert by_scontrol(line(start="Unknown"), job) == Waited(ELIGIBLE * SECOND, None)
    nothing = line(submit="Unknown", eligible="Unknown")
    assert by_scontrol(nothing, job) is None


def test_a_local_time_is_no_time() -> None:
    """An old scontrol that does not know SLURM_TIME_FORMAT."""
    printed = line(submit="2021-10-07T11:14:47", eligible="2021-10-07T11:15:00")
    assert by_scontrol(printed, Job("51", "0")) is None


def test_a_name_may_look_like_anything() -> None:
    odd = "x SubmitTime=now EligibleTime=never JobId=51"
    assert by_scontrol(line(name=odd), Job("51", "0")) is None, "rather than a wrong one"
    assert by_scontrol(line(name="JobId=52 a b"), Job("51", "0")) == TOLD


def test_an_answer_about_another_go_is_none() -> None:
    assert by_scontrol(line(restarts=1), Job("51", "0")) is None
    assert by_scontrol(line(restarts=1), Job("51", "1")) == TOLD


def test_of_an_array_and_of_a_heterogeneous_job_one_part_is_meant() -> None:
    array = [
        line(52, "ArrayJobId=51 ArrayTaskId=1 ", start=START + 60),
        line(51, "ArrayJobId=51 ArrayTaskId=2 "),
        line(5, "ArrayJobId=51 ArrayTaskId=3-9%4 ArrayTaskThrottle=4 ", start="Unknown"),
    ]
    assert by_scontrol("".join(array), Job("51", "0")) == TOLD
    parts = [line(51 + n, f"HetJobId=51 HetJobOffset={n} ") for n in range(2)]
    assert by_scontrol("".join(parts), Job("52", "0")) == TOLD
    assert by_scontrol("".join(parts), Job("5", "0")) is None


def test_sacct_tells_of_the_same_job() -> None:
    told = f"52|{SUBMIT}|{ELIGIBLE}|{START + 60}\n51|{SUBMIT}|{ELIGIBLE}|{START}\n"
    assert by_sacct(told, Job("51")) == TOLD
    assert by_sacct(f"51|{SUBMIT}|Unknown|Unknown\n", Job("51")) == Waited(SUBMIT * SECOND)
    assert by_sacct("51|None assigned|\n", Job("51")) is None


# ── asked ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def there(tmp_path: Path) -> StandIns:
    return StandIns(tmp_path / "there", "scontrol", "sacct")


def test_scontrol_is_asked_first(there: StandIns) -> None:
    there.rule("scontrol", out=line())
    assert Slurm(path=str(there.bin)).ask(Job("51", "0")) == TOLD
    assert there.calls("scontrol") == [["show", "job", "-o", "51"]]
    assert not there.calls("sacct")


@pytest.mark.parametrize("words", [{"code": 1, "err": "Invalid job id specified"}, {"out": "?"}])
def test_sacct_is_asked_where_scontrol_does_not_tell(
    there: StandIns, words: dict[str, str]
) -> None:
    there.rule("scontrol", **words)  # type: ignore[arg-type]
    there.rule("sacct", "51", out=f"51|{SUBMIT}|{ELIGIBLE}|{START}\n")
    assert Slurm(path=str(there.bin)).ask(Job("51", "0")) == TOLD


def test_who_does_not_answer_is_not_waited_for(
    there: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.agent.queues.slurm.ANSWER_SECONDS", 0.5)
    assert base.ANSWER_SECONDS <= 10
    there.rule("scontrol", hangs=True)
    there.rule("sacct", code=1)
    with pytest.raises(NoAnswer):
        Slurm(path=str(there.bin)).ask(Job("51", "0"))


def test_without_slurm_nobody_tells(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer):
        Slurm(path=str(tmp_path)).ask(Job("51", "0"))


def test_times_are_seconds_whatever_the_time_zone(tmp_path: Path) -> None:
    """The environment that the commands get; `date` prints by it as they do."""
    program = tmp_path / "scontrol"
    when = "$(date -d @1633590887 +$SLURM_TIME_FORMAT)"
    told = line(submit=when, eligible=when, start=when).replace("(null)", "none")
    text = told.strip().replace("(33646)", "").replace("(25200)", "")
    program.write_text(f'#!/bin/sh\nTZ=Asia/Kolkata; export TZ\necho "{text}"\n')
    program.chmod(0o755)
    assert Slurm(path=f"{tmp_path}").ask(Job("51", "0")) == Waited(SUBMIT * SECOND, SUBMIT * SECOND)
