"""Asking the head for a capture, once for each object, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.errors import RunwatchError
from runwatch.k8s.operator.head import Head, HeadError

GOING: Final = ("asked", "running")
_NOT_NOW: Final = (0, 401, 403, 408, 429)
"""The object is not to blame: the head is away, or does not know the operator."""


class Refused(RunwatchError):
    """It will not be captured, and the words say why."""


class Busy(RunwatchError):
    """Another capture of the run goes on: later."""


async def begin(head: Head, run: str, session: str, wanted: Mapping[str, Any]) -> None:
    """Asked a second time, the head does not begin a second capture (`once`).

    Raises Refused, Busy, or HeadError for what may be otherwise in a while."""
    try:
        await head.begin_capture(run, {**wanted, "session": session, "once": True})
    except HeadError as error:
        if error.status == 409 and error.code == "active":
            raise Busy(str(error)) from error
        raise _final(error) from error


async def namespaces_of(head: Head, run: str) -> set[str]:
    """In which the pods of its newest attempt are."""
    try:
        return {namespace for namespace, _ in await pods_of(head, run)}
    except HeadError as error:
        raise _final(error) from error


async def look(head: Head, run: str, session: str) -> Mapping[str, Any]:
    try:
        return await head.capture(run, session)
    except HeadError as error:
        raise _final(error) from error


def _final(error: HeadError) -> RunwatchError:
    may_pass = error.status in _NOT_NOW or error.status >= 500
    return error if may_pass else Refused(str(error))


def targets(capture: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = capture.get("processes")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def is_over(capture: Mapping[str, Any]) -> bool:
    return capture.get("state") not in GOING


def left_out(capture: Mapping[str, Any]) -> str:
    """Which ranks left no trace, and why; "" if all did."""
    why = str(capture.get("why") or "")
    if why or any(target.get("state") == "done" for target in targets(capture)):
        return why
    hosts = capture.get("unreachable")
    words = [f"{host}: {why}" for host, why in hosts.items()] if isinstance(hosts, dict) else []
    return "; ".join(words[:8]) or "no process was captured"


def expected_files(capture: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The files that were made, each with its process."""
    return {
        str(name): target
        for target in targets(capture)
        if target.get("state") == "done"
        for name in target.get("files") or ()
    }


async def arrived(head: Head, run: str, session: str, names: Sequence[str]) -> dict[str, Any]:
    """Those of the files that the head can serve by now; agents bring them after the word."""
    if not names:
        return {}
    try:
        profile = await head.profile(run, session)
    except HeadError as error:
        if error.status == 404:
            return {}
        raise
    files = {str(each.get("name")): each for each in profile.get("files") or ()}
    return {name: files[name] for name in names if name in files}


Pod = tuple[str, str]
"""Its namespace and name."""


async def pods_of(head: Head, run: str) -> dict[Pod, list[Mapping[str, Any]]]:
    """The processes of a run's newest attempt, by their pod."""
    processes = [each for each in await head.processes(run) if each.get("pod")]
    newest = max((int(each.get("attempt") or 0) for each in processes), default=0)
    found: dict[Pod, list[Mapping[str, Any]]] = {}
    for each in processes:
        is_of_it = int(each.get("attempt") or 0) == newest
        if is_of_it and each.get("role", "process") == "process":
            where = str(each.get("pod_namespace") or ""), str(each["pod"])
            found.setdefault(where, []).append(each)
    return found
