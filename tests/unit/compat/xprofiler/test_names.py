"""Every name, parameter and flag of cloud-diagnostics-xprof 0.1.1 is here, and means the same."""

from __future__ import annotations

import argparse
import inspect
import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import cloud_diagnostics_xprof
import pytest
from cloud_diagnostics_xprof.actions import action, list_action, register_action
from cloud_diagnostics_xprof.actions.capture_action import Capture
from cloud_diagnostics_xprof.actions.create_action import Create, startup_script_string
from cloud_diagnostics_xprof.xprof import KeyValueAction, XprofParser, main

from runwatch.compat.xprofiler.command import COMMANDS, defaults

NAMES = Path(__file__).parents[3] / "fixtures/xprofiler/names-0.1.1.json"
LEFT_OUT = {"cloud_diagnostics_xprof.data_generator"}  # fills a bucket of its authors; not ours
# (short flag, default, values, several).  As recorded: `required` where the original always asks.
FLAGS: dict[str, dict[str, tuple[str, Any, tuple[str, ...] | None, bool]]] = {
    "create": {
        "--log-directory": ("-l", None, None, False),
        "--zone": ("-z", None, None, False),
        "--vm-name": ("-n", None, None, False),
        "--machine-type": ("-m", "c4-highmem-8", None, False),
        "--auto-delete-on-failure-off": ("", False, None, False),
        "--skip-creation-if-exists": ("", False, None, False),
        "--gke": ("", False, None, False),
        "--verbose": ("-v", False, None, False),
    },
    "list": {
        "--zones": ("-z", None, None, True),
        "--log-directory": ("-l", None, None, True),
        "--vm-name": ("-n", None, None, True),
        "--filter": ("-f", None, None, True),
        "--gke": ("", False, None, False),
        "--verbose": ("-v", False, None, False),
    },
    "delete": {
        "--zone": ("-z", None, None, False),
        "--log-directory": ("-l", None, None, True),
        "--vm-name": ("-n", None, None, True),
        "--gke": ("", False, None, False),
        "--quiet": ("-q", False, None, False),
        "--verbose": ("-v", False, None, False),
    },
    "capture": {
        "--log-directory": ("-l", None, None, False),
        "--zone": ("-z", None, None, False),
        "--hosts": ("-n", None, None, True),
        "--framework": ("-f", None, ("pytorch", "jax", "tensorflow"), False),
        "--orchestrator": ("-o", "gce", ("gce", "gke"), False),
        "--port": ("-p", 9012, None, False),
        "--duration": ("-d", 2000, None, False),
        "--use-ssh-proxy": ("-u", False, None, False),
        "--non-tpu-vm": ("", False, None, False),
        "--verbose": ("-v", False, None, False),
    },
    "connect": {
        "--log-directory": ("-l", None, None, False),
        "--zone": ("-z", None, None, False),
        "--mode": ("-m", "ssh", ("ssh", "proxy"), False),
        "--port": ("-p", 6006, None, False),
        "--host-port": ("", 6006, None, False),
        "--disconnect": ("-d", False, None, False),
        "--use-ssh-proxy": ("-u", False, None, False),
        "--verbose": ("-v", False, None, False),
    },
    "register": {
        "--log-directory": ("-l", None, None, False),
        "--region": ("-r", None, None, False),
        "--ml-run-name": ("-m", None, None, False),
        "--run-set": ("-s", None, None, False),
        "--project-id": ("-p", None, None, False),
        "--verbose": ("-v", False, None, False),
    },
}
NEEDED = {
    "create": "-l gs://b/r -z z",
    "delete": "-z z -n vm",
    "capture": "-l gs://b/r -z z -n h -f jax",
    "connect": "-l gs://b/r -z z",
    "register": "-l gs://b/r -r r -m n -s s -p p",
}


def found(path: str) -> Any:
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(path)


def parameters(function: Any) -> list[str]:
    names: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(each.name)
    return names


def test_every_name_and_its_parameters() -> None:
    recorded: dict[str, list[str] | None] = json.loads(NAMES.read_text())
    for path, wanted in recorded.items():
        ours = found(path)
        if wanted is not None:
            assert parameters(ours)[: len(wanted)] == wanted, path
    ours_only = {
        module.name
        for module in pkgutil.walk_packages(
            cloud_diagnostics_xprof.__path__, "cloud_diagnostics_xprof."
        )
    } - {path.rpartition(".")[0] for path in recorded}
    assert ours_only == {"cloud_diagnostics_xprof.actions"}  # a package in name only, there
    assert not LEFT_OUT & set(recorded)


def options(verb: str) -> Iterator[tuple[str, argparse.Action]]:
    top = argparse.ArgumentParser()
    import_module("runwatch.compat.xprofiler.command").add_verb(added := top.add_subparsers(), verb)
    for one in added.choices[verb]._actions:
        yield from ((flag, one) for flag in one.option_strings)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_flag_its_short_form_default_and_values(verb: str) -> None:
    ours = dict(options(verb))
    for flag, (short, default, choices, several) in FLAGS[verb].items():
        one = ours[flag]
        assert not short or ours[short] is one, (flag, short)
        assert one.default == default, flag
        assert choices is None or (one.choices and set(one.choices) == set(choices)), flag
        assert (one.nargs == "+") == several, flag
    assert {flag for flag, _ in options("capture") if len(flag) == 2} == {
        "-h", "-l", "-z", "-n", "-f", "-o", "-p", "-d", "-u", "-v",
    }  # fmt: skip


@pytest.mark.parametrize("verb", NEEDED)
def test_what_the_original_needs_in_the_cloud_is_needed(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = NEEDED[verb].split()
    for at in range(0, len(words), 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", "/nonexistent")
            try:
                code = main([verb, *words[:at], *words[at + 2 :]])
            except SystemExit as left:
                code = int(left.code or 0)
        said = capsys.readouterr().err
        assert code == 2, (words[at], said)
        assert words[at] in said, said


def test_a_program_s_own_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XPROFILER_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    lister = list_action.List()
    asked = argparse.Namespace(
        zones=None, log_directory=[str(tmp_path)], vm_name=None, filter=None, gke=False
    )
    text = lister.run(asked)
    assert json.loads(text) == []
    lister.display(text, args=asked)
    assert capsys.readouterr().out.split() == [*action.Command.TABLE_COLUMNS, "-" * 13, "---",
                                               "----", "----"]  # fmt: skip
    with pytest.raises(ValueError, match="gcloud is not on the PATH"):
        lister.run(argparse.Namespace(zones=["a"], log_directory=None, vm_name=None, filter=None))
    wrong = argparse.Namespace(log_directory="gs://b/$(id)", zone="z", vm_name=None)
    creator = Create()
    with pytest.raises(ValueError, match="no path in a bucket"):
        creator.run_gce_creation(wrong)
    assert creator.vm_name.startswith("xprof-")
    assert "tensorboard --logdir 'gs://b/r'" in startup_script_string(
        "gs://b/r", "vm", "us-east1-b"
    )


def test_numbers_that_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the original's own Namespace."""
    asked = argparse.Namespace(
        log_directory=str(tmp_path), zone="z", hosts=["localhost"], framework="jax", port="1",
        duration="100", orchestrator="gce", use_ssh_proxy=False, non_tpu_vm=False,
    )  # fmt: skip
    assert Capture().run(asked) == ""
    assert "nothing listens on localhost:1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="'soon'"):
        Capture().run(argparse.Namespace(**vars(asked) | {"duration": "soon"}))


def test_a_parser_with_some_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWATCH_AGENT", "off")
    commands: dict[str, action.Command] = {
        "capture": Capture(),
        "register": register_action.Register(),
    }
    parser = XprofParser("of ours", commands)
    args, rest = parser.parser.parse_known_args(
        ["register", "-l", str(tmp_path), "-m", "mine", "--async", "--limit", "5", "6"]
    )
    extra = parser.parse_extra_args(rest)
    assert (args.command, extra) == ("register", {"--async": None, "--limit": "5 6"})
    shown = parser.run(args.command, args, extra, args.verbose)
    parser.display_command_output(args.command, shown, args=args)
    assert capsys.readouterr().out == "view the ML run with: runwatch show mine\n"
    with pytest.raises(ValueError, match="`list` not implemented"):
        parser.run("list", args)
    assert parser.parse_extra_args([]) is None and parser.parse_extra_args(None) is None


def test_small_things() -> None:
    class Mine(action.Command):
        def add_subcommand(self, subparser: Any) -> None: ...
        def run(self, args: Any, extra_args: Any = None, verbose: bool = False) -> str:
            return ""

        def display(
            self, display_str: Any, *, args: Any, extra_args: Any = None, verbose: bool = False
        ) -> None: ...

    mine = Mine("mine", "of mine")
    assert mine.format_label_string({"a": "gs://b/c/", "d": "e"}) == "a=b/c,d=e"
    old = mine.LOG_DIRECTORY_STRING_REPLACEMENTS["0.0.10"]
    assert mine.format_string_with_replacements("gs://b/c/", old) == "b--slash--c"
    table = mine.create_data_table(columns=("A", "B"), lines=[("1", "22"), ("only one",)])
    assert table == {"A": ["1"], "B": ["22"]}
    assert mine.display_table_string(table).splitlines() == ["A  B", "-  --", "1  22"]
    assert [action.flag_from_string(name) for name in ("f", "flag", "--x")] == [
        "-f",
        "--flag",
        "--x",
    ]
    assert action.flag_with_value_from_key_value("zone", "") == ("--zone", None)
    assert action.get_package_version("no-such-package") == "unknown"
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", nargs="+", action=KeyValueAction)
    assert parser.parse_args(["--set", "a=1=2", "b"]).set == {"a": "1=2", "b": None}
    lister = list_action.List()
    pod = {"metadata": {"annotations": {"log-directory": "gs://b/r"}}}
    assert lister.filter_pods_by_log_directory([pod, {}], ["gs://b/r/"]) == [pod]
    old_vm = {"labels": {"xprofiler_log_directory": "b--slash--r"}}
    assert lister.get_log_directory_from_vm(old_vm) == "gs://b/r"
    assert lister.get_log_directory_from_vm({}) is None
    assert defaults("connect")["port"] == 6006
