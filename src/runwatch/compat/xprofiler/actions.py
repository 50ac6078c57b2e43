"""cloud-diagnostics-xprof's classes: one for each verb, and the parser that holds them.

A program that builds the command line itself, or calls a verb with an argparse.Namespace, does so
through these.  What a verb does is in `verbs.py`; what goes wrong is a ValueError, as there.
"""

from __future__ import annotations

import argparse
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from runwatch.compat.xprofiler import command, extra, startup, verbs
from runwatch.compat.xprofiler.backend import Instance, plain
from runwatch.compat.xprofiler.gce import PLUGIN, VERSION, directory_of
from runwatch.compat.xprofiler.settings import API
from runwatch.compat.xprofiler.tables import COLUMNS, aligned
from runwatch.errors import RunwatchError

Extra = Mapping[str, str | None]
_NUMBERS: Final = {"port", "host_port", "duration"}


def get_package_version(
    package_name: str, version_default: str = "unknown", *, verbose: bool = False
) -> str:
    """With dashes for dots, as a label may be."""
    try:
        return metadata.version(package_name).replace(".", "-")
    except metadata.PackageNotFoundError:
        return version_default


def flag_from_string(flag_name: str) -> str:
    if flag_name.startswith("-"):
        return flag_name
    return f"-{flag_name}" if len(flag_name) == 1 else f"--{flag_name}"


def flag_with_value_from_key_value(key: str, value: str | None) -> tuple[str, str | None]:
    return flag_from_string(key), value or None


def startup_script_string(log_directory: str, vm_name: str, zone: str) -> str:
    return startup.script(log_directory, vm_name, zone.rpartition("-")[0], PLUGIN)


@dataclass(frozen=True)
class _Replacement:
    original: str
    to: str


class Command(ABC):
    GCLOUD_COMMAND = "gcloud"
    VM_BASE_NAME = "xprof"
    TABLE_COLUMNS: Sequence[str] = COLUMNS
    LOG_DIRECTORY_LABEL_KEY = "xprofiler_log_directory"
    XPROFILER_VERSION_LABEL_KEY = "xprofiler_version"
    XPROFILER_VERSION = VERSION.replace(".", "-")
    LOG_DIRECTORY_LABEL_KEY_N_SECTIONS = f"{LOG_DIRECTORY_LABEL_KEY}-n_sections"
    DEFAULT_NAMESPACE = "xprofiler"
    Replacement = _Replacement
    DEFAULT_STRING_REPLACEMENTS: Sequence[_Replacement] = (_Replacement("gs://", ""),)
    LOG_DIRECTORY_STRING_REPLACEMENTS: Mapping[str, Sequence[_Replacement]] = {
        "0.0.10": (_Replacement("gs://", ""), _Replacement("/", "--slash--")),
        "default": DEFAULT_STRING_REPLACEMENTS,
        "current": DEFAULT_STRING_REPLACEMENTS,
    }

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description

    @abstractmethod
    def add_subcommand(self, subparser: Any) -> None:
        """Add the verb and its flags to what `add_subparsers` gave."""

    @abstractmethod
    def run(
        self, args: argparse.Namespace, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        """Do it.  Raises ValueError."""

    @abstractmethod
    def display(
        self,
        display_str: str | None,
        *,
        args: argparse.Namespace,
        extra_args: Extra | None = None,
        verbose: bool = False,
    ) -> None:
        """Show what `run` returned, where `run` has not."""

    def format_string_with_replacements(
        self, original_string: str, replacements: Sequence[_Replacement]
    ) -> str:
        text = original_string.rstrip("/")
        for replacement in replacements:
            text = text.replace(replacement.original, replacement.to)
        return text

    def format_label_string(
        self, labels: dict[str, str], replacements: Sequence[_Replacement] | None = None
    ) -> str:
        pairs = ",".join(f"{key}={value.removesuffix('/')}" for key, value in labels.items())
        chosen = replacements or self.DEFAULT_STRING_REPLACEMENTS
        return self.format_string_with_replacements(pairs, chosen)

    def create_data_table(
        self, *, columns: Sequence[str], lines: Sequence[Sequence[str]], verbose: bool = False
    ) -> Mapping[str, Sequence[str]]:
        """Lines with another number of cells are left out."""
        whole = [line for line in lines if len(line) == len(columns)]
        return {column: [line[at] for line in whole] for at, column in enumerate(columns)}

    def display_table_string(
        self, data_table: Mapping[str, Sequence[str]], *, verbose: bool = False
    ) -> str:
        rows = zip(*data_table.values(), strict=True)
        return aligned(list(data_table), [tuple(map(str, row)) for row in rows])


class _Verb(Command):
    verb = ""

    def __init__(self) -> None:
        super().__init__(self.verb, command.COMMANDS[self.verb][0])

    def add_subcommand(self, subparser: Any) -> None:
        command.add_verb(subparser, self.verb)

    def run(
        self, args: argparse.Namespace, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        arguments, flags = self._filled(args, verbose), dict(extra_args or {})
        try:
            return self._run(arguments, flags)
        except RunwatchError as error:
            raise ValueError(str(error)) from error

    def _run(self, arguments: argparse.Namespace, flags: extra.Flags) -> str:
        verbs.RUN[self.verb](arguments, flags)
        return ""

    def display(
        self,
        display_str: str | None,
        *,
        args: argparse.Namespace,
        extra_args: Extra | None = None,
        verbose: bool = False,
    ) -> None:
        """`run` has shown it."""

    def _filled(self, args: argparse.Namespace, verbose: bool) -> argparse.Namespace:
        """A program's own Namespace has no flags that only we have."""
        usual = command.defaults(self.verb)
        given = {key: value for key, value in vars(args).items() if value is not None}
        for key in _NUMBERS & given.keys():  # text, in the original's
            given[key] = int(given[key])
        if given.get("port", usual.get("port")) != usual.get("port"):
            given.setdefault("chosen_port", given["port"])
        is_verbose = bool(verbose or given.get("verbose"))
        return argparse.Namespace(**usual | given | {"command": self.verb, "verbose": is_verbose})


def _with(args: argparse.Namespace, **more: bool) -> argparse.Namespace:
    return argparse.Namespace(**vars(args) | more)


class Capture(_Verb):
    verb = "capture"


class Connect(_Verb):
    verb = "connect"


class Delete(_Verb):
    verb = "delete"


class Create(_Verb):
    verb = "create"

    def run_gce_creation(
        self, args: argparse.Namespace, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        return self.run(_with(args, gke=False), extra_args, verbose)

    def run_gke_creation(
        self, args: argparse.Namespace, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        return self.run(_with(args, gke=True), extra_args, verbose)

    def __init__(self) -> None:
        super().__init__()
        self.vm_name = f"{self.VM_BASE_NAME}-{uuid.uuid4()}"

    def _run(self, arguments: argparse.Namespace, flags: extra.Flags) -> str:
        self.vm_name = arguments.vm_name = arguments.vm_name or self.vm_name
        return super()._run(arguments, flags)


class List(_Verb):
    """`run` returns JSON: an instance as gcloud and as kubectl would describe it, in one."""

    verb = "list"

    def run_gce_list(
        self, args: argparse.Namespace, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        return self.run(_with(args, gke=False), extra_args, verbose)

    def run_gke_list(
        self, args: argparse.Namespace, *, extra_args: Extra | None = None, verbose: bool = False
    ) -> str:
        return self.run(_with(args, gke=True), extra_args, verbose)

    def _run(self, arguments: argparse.Namespace, flags: extra.Flags) -> str:
        return json.dumps([_described(one) for one in verbs.listed(arguments, flags)])

    def display(
        self,
        display_str: str | None,
        *,
        args: argparse.Namespace,
        extra_args: Extra | None = None,
        verbose: bool = False,
    ) -> None:
        lines = [
            (one["log_directory"], one["url"], one["name"], one["zone"])
            for one in json.loads(display_str or "[]")
        ]
        shown = self.create_data_table(columns=self.TABLE_COLUMNS, lines=lines)
        print(self.display_table_string(shown))

    def get_log_directory_from_vm(self, vm: Mapping[str, Any], verbose: bool = False) -> str | None:
        return directory_of(vm) or None

    def filter_pods_by_log_directory(
        self,
        pods: Sequence[Mapping[str, Any]],
        log_directories: Sequence[str],
        *,
        verbose: bool = False,
    ) -> list[Mapping[str, Any]]:
        wanted = set(map(plain, log_directories))
        return [pod for pod in pods if plain(_noted(pod).get("log-directory", "")) in wanted]


def _described(one: Instance) -> dict[str, Any]:
    backend = one.url.partition("://")[2].partition("-dot-")[0]
    labels = {"instance": one.name, "zone": one.zone}
    notes = {"log-directory": one.log_directory, "proxy-url": one.url}
    return one.to_json() | {
        "labels": {"tb_backend_id": backend},
        "metadata": {"items": [one.log_directory], "labels": labels, "annotations": notes},
    }


def _noted(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


class Register(_Verb):
    verb = "register"
    BASE_URL = f"{API}/v1alpha"
    OPERATION_PREFIX = "operation-"

    def _run(self, arguments: argparse.Namespace, flags: extra.Flags) -> str:
        return verbs.registered(arguments, flags)

    def display(
        self,
        display_str: str | None,
        *,
        args: argparse.Namespace,
        extra_args: Extra | None = None,
        verbose: bool = False,
    ) -> None:
        print(display_str)


class KeyValueAction(argparse.Action):
    """`--flag a=1 b` -> {"a": "1", "b": None}."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        pairs = getattr(namespace, self.dest, None) or {}
        for word in values:
            key, separator, value = word.partition("=")
            pairs[key] = value if separator else None
        setattr(namespace, self.dest, pairs)


class XprofParser:
    def __init__(
        self, description: str | None = None, commands: Mapping[str, Command] | None = None
    ) -> None:
        self.description = description or command.__doc__
        self.commands = commands or {}
        self.parser = command.top_parser(self.description)
        added = self.parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
        for one in self.commands.values():
            one.add_subcommand(added)

    def run(
        self,
        command_name: str,
        args: argparse.Namespace,
        extra_args: Extra | None = None,
        verbose: bool = False,
    ) -> str:
        return self._command(command_name).run(args, extra_args, verbose)

    def display_command_output(
        self,
        command_name: str,
        command_output: str,
        *,
        args: argparse.Namespace,
        extra_args: Mapping[str, str] | None = None,
        verbose: bool = False,
    ) -> None:
        one = self._command(command_name)
        one.display(command_output, args=args, extra_args=extra_args, verbose=verbose)

    def parse_extra_args(self, extra_args: list[str] | None) -> Extra | None:
        return extra.parse(extra_args or ()) or None

    def _command(self, name: str) -> Command:
        if name not in self.commands:
            raise ValueError(f"Command `{name}` not implemented yet.")
        return self.commands[name]
