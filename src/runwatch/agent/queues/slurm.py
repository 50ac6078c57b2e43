"""Slurm: `scontrol show job`, else `sacct`.

* Slurm prints times in the local time of the caller, unless `SLURM_TIME_FORMAT` says otherwise;
  `%s` makes them seconds since the epoch, in any time zone.
* The wait begins when the job is eligible.  The scheduler does not delay a job that was submitted
  for tomorrow, or that waits for another job.  Slurm counts its own waiting times like that.
* A requeued job keeps its number, and is submitted and eligible anew; `Restarts` says how often.
  An answer about another start of the job does not count.
* The number of a job array, or of a heterogeneous job, may stand for all its parts: we take the
  part with exactly this number.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.agent.queues.base import ANSWER_SECONDS, Job, NoAnswer, Waited

# Where sites install Slurm, if the agent's own PATH does not name it.  We never use the PATH of a
# process: the agent may have more rights than the user who set it.
_PLACES: Final = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin")
_SACCT_FIELDS: Final = "JobIDRaw,Submit,Eligible,Start"
_SECOND_NS: Final = 10**9


class Slurm:
    name = "slurm"

    def __init__(self, *, path: str | None = None) -> None:
        """`path`: where Slurm's commands are, if not in the PATH or the usual places."""
        self._path = path

    def job(self, environment: Mapping[str, str], root: Path) -> Job | None:
        number = environment.get("SLURM_JOB_ID", "")
        if not _is_number(number):
            return None
        return Job(number, environment.get("SLURM_RESTART_COUNT") or "0")

    def ask(self, job: Job) -> Waited:
        text = self._run("scontrol", "show", "job", "-o", job.name)
        waited = None if text is None else by_scontrol(text, job)
        if waited is None:
            text = self._run("sacct", "-n", "-P", "-X", "-j", job.name, f"--format={_SACCT_FIELDS}")
            waited = None if text is None else by_sacct(text, job)
        if waited is None:
            raise NoAnswer("neither scontrol nor sacct tells")
        return waited

    def _run(self, program: str, *words: str) -> str | None:
        """What the program prints; None if it is missing, fails, or takes too long."""
        path = self._path
        if path is None:
            path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
        command = shutil.which(program, path=path)
        if command is None:
            return None
        try:
            done = subprocess.run(
                [command, *words],
                env={**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.decode(errors="replace")


def by_scontrol(text: str, job: Job) -> Waited | None:
    """Each line is a job.  Its name or comment may hold any text, but the order is fixed."""
    for line in text.splitlines():
        if not re.match(rf"JobId={job.name}\s", line):
            continue
        restarts = re.search(r" Requeue=\S+ Restarts=([0-9]+) ", line)
        if restarts is not None and restarts[1] != job.go:
            return None  # it was requeued in the meantime
        when = re.search(r" SubmitTime=(\S+) EligibleTime=(\S+) .*? StartTime=(\S+) EndTime=", line)
        return _waited(*when.groups()) if when is not None else None
    return None


def by_sacct(text: str, job: Job) -> Waited | None:
    """Of a requeued job sacct prints only the last start, unless asked for all."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 4 and fields[0] == job.name:
            return _waited(*fields[1:])
    return None


def _waited(submitted: str, eligible: str, started: str) -> Waited | None:
    """Each time as Slurm prints it: seconds, or a word like Unknown."""
    queued = max((_ns(moment) for moment in (submitted, eligible)), key=lambda ns: ns or 0)
    return None if queued is None else Waited(queued, _ns(started))


def _ns(seconds: str) -> int | None:
    return int(seconds) * _SECOND_NS if _is_number(seconds) else None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,11}", text) is not None
