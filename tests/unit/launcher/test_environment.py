"""Which variables a command gets."""

from __future__ import annotations

import os

import pytest

from runwatch.launcher.dropins import dropin_folders, packages_in
from runwatch.launcher.environment import BOOT, Options, for_command

COMMAND = ["python", "train.py"]


def test_a_command_gets_a_name_a_key_and_hooks() -> None:
    made = for_command(Options(), COMMAND, "/run/x", {"HOME": "/h"})
    assert made["RUNWATCH_NAME"] == "train" and "RUNWATCH_RUN_ID" not in made
    assert made["RUNWATCH_ATTEMPT"].startswith("exec-")
    assert (made["RUNWATCH_EXEC"], made["RUNWATCH_AUTO"], made["HOME"]) == ("/run/x", "1", "/h")
    assert made["PYTHONPATH"].split(os.pathsep)[0] == BOOT


def test_what_the_user_says_comes_first() -> None:
    given = {
        "RUNWATCH_NAME": "mine", "RUNWATCH_ATTEMPT": "3", "RUNWATCH_AUTO": "off",
    }  # fmt: skip
    made = for_command(Options(), COMMAND, "", given)
    assert {name: made[name] for name in given} == {**given, "RUNWATCH_AUTO": "0"}
    assert "RUNWATCH_EXEC" not in made


def test_a_given_name_is_the_runs_identity() -> None:
    options = Options(name="n", group="g", head="http://head:8090", directory="/d")
    made = for_command(options, COMMAND, "", {"RUNWATCH_NAME": "other"})
    assert (made["RUNWATCH_NAME"], made["RUNWATCH_RUN_ID"]) == ("n", "n")
    assert (made["RUNWATCH_GROUP"], made["RUNWATCH_DIR"]) == ("g", "/d")
    assert made["RUNWATCH_HEAD"] == "http://head:8090"


def test_an_id_is_not_the_name() -> None:
    made = for_command(Options(name="n", id="i"), COMMAND, "", {})
    assert (made["RUNWATCH_NAME"], made["RUNWATCH_RUN_ID"]) == ("n", "i")


@pytest.mark.parametrize("before", ["", "/a", f"/a{os.pathsep}{BOOT}", f"/a{os.pathsep}"])
def test_the_path_of_the_user_is_kept(before: str) -> None:
    made = for_command(Options(), COMMAND, "", {"PYTHONPATH": before})
    ours, _, theirs = made["PYTHONPATH"].partition(f"{os.pathsep}/a")
    assert ours.startswith(BOOT)
    assert theirs == (os.pathsep if before.endswith(os.pathsep) else "")
    assert made["PYTHONPATH"].count(BOOT) == 1


def test_processes_that_a_scheduler_started_together_keep_its_key() -> None:
    given = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "night", "SLURM_PROCID": "3"}
    made = for_command(Options(), COMMAND, "", given)
    assert ("RUNWATCH_ATTEMPT" in made, made["RUNWATCH_NAME"]) == (False, "night")
    assert made["RUNWATCH_EXEC_RANK"] == "3"


def test_without_hooks_and_console_nothing_is_put_before_the_program() -> None:
    made = for_command(Options(hooks=False, console=False), COMMAND, "", {})
    assert ("PYTHONPATH" in made, made["RUNWATCH_AUTO"]) == (False, "0")


def test_every_drop_in_is_in_front_unless_it_is_not_wanted() -> None:
    [folder] = dropin_folders()
    assert {"google_cloud_mldiagnostics", "gsprof", "mltrace"} <= set(packages_in(folder))
    made = for_command(Options(), COMMAND, "", {"PYTHONPATH": "/a"})
    assert made["PYTHONPATH"].split(os.pathsep) == [BOOT, str(folder), "/a"]
    made = for_command(Options(), COMMAND, "", {"PYTHONPATH": "/a", "RUNWATCH_DROPIN": "off"})
    assert made["PYTHONPATH"].split(os.pathsep) == [BOOT, "/a"]
