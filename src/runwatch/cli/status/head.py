"""`runwatch status`: which head, where its address came from, whether it answers, how it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.address import (
    ADDRESS_FILE,
    Listening,
    http_address,
    is_same_place,
    read_quietly,
    token_for,
)
from runwatch.cli.pictures.moments import time as moment
from runwatch.cli.status.types import Answer, Problem, Section, many, user_name, whose
from runwatch.errors import UsageError
from runwatch.files import Folder
from runwatch.journal.liveness import read_stat, this_host

MOST_TOLD: Final = 5
"""Journals that are named one by one."""


@dataclass(frozen=True, slots=True)
class Named:
    """The head that agents of this user send to, by the settings."""

    head: str = ""
    source: str = ""
    """"environment RUNWATCH_HEAD" or "file PATH"."""
    token: str = ""
    ca: Path | None = None
    host: str = ""
    inherit_seconds: float = 0.0
    budget_bytes: int = 0
    problem: str = ""
    """Why the settings cannot be read."""


@dataclass(frozen=True, slots=True)
class Found:
    section: Section
    named: Named
    serves: bool = False
    """A head that answers says that it serves this directory."""


def look(root: Path, named: Named) -> Found:
    note = read_quietly(root)
    if named.head:
        return Found(_named(root, named, note), named)
    if note is not None:
        section = _noted(root, note[0], note[1], named.ca)
        return Found(section, named, serves=section.facts["state"] in ("well", "degraded", "token"))
    return Found(_nobody(root, named), named)


def _nobody(root: Path, named: Named) -> Section:
    facts = _facts("", "directory", Answer("none"))
    said = [
        "none is named (RUNWATCH_HEAD, or head in config.toml) and none serves this directory",
        "commands read the directory themselves; `runwatch ui` shows it in a browser",
    ]
    problems = _settings_problem(named)
    if (owner := _strangers_note(root)) is not None:
        problems.append(
            Problem(
                f"{root / ADDRESS_FILE} belongs to {user_name(owner)} and is not believed",
                "remove it, or ask its owner to",
            )
        )
    return Section("head", facts, said, problems)


def _strangers_note(root: Path) -> int | None:
    """Whose the note is, if it is of somebody whose word does not count here."""
    try:
        with Folder.at(root) as folder:
            owner = folder.stat(ADDRESS_FILE).st_uid
            return None if owner in folder.known() else owner
    except OSError:
        return None


def _settings_problem(named: Named) -> list[Problem]:
    if not named.problem:
        return []
    return [Problem(named.problem, "programs and agents stumble over it, too: set it right")]


def _named(root: Path, named: Named, note: tuple[Listening, int] | None) -> Section:
    """One that agents send to; its page is, as a rule, one port further."""
    problems = _settings_problem(named)
    try:
        address = http_address(named.head)
    except (UsageError, ValueError) as error:
        problems.append(Problem(str(error), f"set it right: {named.source}"))
        return Section(
            "head", _facts(named.head, named.source, Answer("unreachable")), [], problems
        )
    answer = _asked(address, token_for(address, root, named.token, quietly=True), named.ca)
    said: list[str] = []
    if answer.health is None:
        problems.append(_unreached(address, answer, named))
    else:
        said, more = _told(address, answer, answer.health, f"from {named.source}")
        problems += more
    if note is None or not note[0].http or is_same_place(note[0].http, address):
        return Section("head", _facts(address, named.source, answer), said, problems)
    beside = _noted(root, *note, named.ca)
    if not beside.problems:
        said.append(f"another one serves this directory, and answers: {note[0].http}")
    problems += beside.problems
    facts = _facts(address, named.source, answer, beside.facts["note"])
    return Section("head", facts, said, problems)


def _asked(address: str, token: str, ca: Path | None) -> Answer:
    from runwatch.cli.status.asking import ask  # HTTP and TLS: only for who has somebody to ask

    return ask(address, token, ca)


def _unreached(address: str, answer: Answer, named: Named) -> Problem:
    todo = {
        "refused": "start it there (`runwatch head`), or set the address right",
        "silent": "is the machine up, and does a firewall let you through?",
        "name": "set the address right",
        "tls": "RUNWATCH_CA names the certificate to check it by; http:// and grpc:// are without "
        "TLS, https:// and grpcs:// with it",
        "other": "set the address right, or stop what has its port",
    }.get(answer.state, "is the machine up, and is there a way to it?")
    return Problem(f"{address} (from {named.source}) is not reached: {answer.why}", todo)


def _noted(root: Path, note: Listening, owner: int, ca: Path | None) -> Section:
    """One that left its address in the directory; it may be gone."""
    about = _note_facts(note, owner)
    began = f" since {moment(note.since_ns)}" if note.since_ns else ""
    where = f" on {note.host}" if note.host else ""
    if not note.http:
        facts = _facts("", ADDRESS_FILE, Answer("unreachable", "it has no HTTP port"), about)
        who = f"process {note.pid}{where}{began}, of {user_name(owner)}, without an HTTP port"
        return Section("head", facts, [who, "its health cannot be asked for"])
    answer = _asked(note.http, token_for(note.http, root, quietly=True), ca)
    if answer.health is not None:
        source = f"from {ADDRESS_FILE} in the directory"
        said, problems = _told(note.http, answer, answer.health, source)
        said.append(f"process {note.pid}{where}{began}, of {whose(owner)}")
        return Section("head", _facts(note.http, ADDRESS_FILE, answer, about), said, problems)
    stale = Answer("stale", answer.why)
    ended = ", and that process runs no more" if about["runs"] is False else ""
    what = (
        f"{ADDRESS_FILE} says that process {note.pid}{where} of {user_name(owner)} serves this "
        f"directory at {note.http}{began}, but it is not reached: {answer.why}{ended}"
    )
    todo = (
        f"start it again (`runwatch ui --dir {root}` or `runwatch head --dir {root}`), or remove "
        f"{root / ADDRESS_FILE} if it is gone for good"
    )
    facts = _facts(note.http, ADDRESS_FILE, stale, about)
    return Section("head", facts, [], [Problem(what, todo)])


def _note_facts(note: Listening, owner: int) -> dict[str, Any]:
    """`runs`: whether the process is there; None if that cannot be told from here."""
    runs = None
    if note.host == this_host():
        try:
            stat = read_stat(note.pid)
            runs = stat is not None and not stat.dead
        except OSError:
            runs = None
    return {
        "pid": note.pid,
        "host": note.host,
        "since_ns": note.since_ns or None,
        "owner": user_name(owner),
        "runs": runs,
    }


def _facts(
    address: str, source: str, answer: Answer, note: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    health = answer.health
    state = answer.state
    if state == "well" and health is not None and health.get("status") != "ok":
        state = "degraded"
    return {
        "address": address or None,
        "from": source,
        "state": state,
        "why": answer.why,
        "version": None if not (health and "version" in health) else str(health["version"]),
        "note": note,
        "health": None if health is None else _health_facts(health),
    }


def _health_facts(health: Mapping[str, Any]) -> dict[str, Any]:
    """Whatever answers there may say anything."""
    aside = health.get("aside")
    return {
        "status": str(health.get("status")),
        "problem": str(health.get("problem") or ""),
        "notes": _texts(health.get("notes")),
        "aside": [each for each in aside if isinstance(each, dict)]
        if isinstance(aside, list)
        else [],
        "records_refused": _count(health.get("records_refused")),
        "records_dropped": _count(health.get("records_dropped")),
    }


def _count(said: object) -> int:
    return said if isinstance(said, int) else 0


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _told(
    address: str, answer: Answer, health: Mapping[str, Any], source: str
) -> tuple[list[str], list[Problem]]:
    """Sentences and problems of one that answered."""
    said = [f"{address} ({source})"]
    if answer.state == "token":
        todo = (
            "set RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE; the head prints its token when it starts, "
            "and `runwatch token create` makes others"
        )
        said.append(f"answers, state {health['status']}; it says more only with a valid token")
        return said, [Problem(answer.why, todo)]
    version = str(health["version"])
    ours = "as ours" if version == __version__ else f"ours is {__version__}"
    said.append(f"answers; version {version}, {ours}")
    return said + _counts(health), _ailments(health)


def _counts(health: Mapping[str, Any]) -> list[str]:
    refused = _count(health.get("records_refused"))
    return [f"{many(refused, 'malformed record')} left out since it began"] if refused else []


def _ailments(health: Mapping[str, Any]) -> list[Problem]:
    found = []
    if health.get("problem"):
        todo = "it goes on by itself when that is over; until then nodes keep what they have"
        found.append(Problem(f"it takes no data: {health['problem']}", todo))
    notes = _texts(health.get("notes"))
    return found + [Problem(note, _todo_of(note) or "the head's log tells more") for note in notes]


def _todo_of(note: str) -> str:
    if " are allowed (" in note:
        return "raise that setting and start the head again, or delete runs (`runwatch delete`)"
    if "nothing is deleted for a day" in note:
        return "set the head's clock right if it is wrong"
    return ""


def _others(head: Section) -> list[Problem]:
    away = f"{head.facts['address']} (from {head.facts['from']}) is not reached: "
    return [problem for problem in head.problems if not problem.what.startswith(away)]


def only_its_page_is_away(head: Section) -> Section:
    """An agent is connected to it: from nodes often only the port for agents is open."""
    if head.facts["state"] not in ("refused", "silent", "unreachable"):
        return head
    said = [
        f"{head.facts['address']} (from {head.facts['from']}) is not reached from here: "
        f"{head.facts['why']}",
        "but the agent is connected to the head; only the head's health is not known here",
    ]
    return replace(head, said=[*said, *head.said], problems=_others(head))


def asides_elsewhere(health: Mapping[str, Any], known: Sequence[str]) -> list[Problem]:
    """Journals that the head names as set aside, but for those that are told of already."""
    others = [each for each in health["aside"] if each.get("journal") not in known]
    told = [
        Problem(
            f"journal {each.get('journal')} of host {each.get('host')} is set aside: "
            f"{each.get('why')}",
            _todo_of(str(each.get("why")))
            or "the others go on; it is tried again by itself, or by the next version of Runwatch",
        )
        for each in others[:MOST_TOLD]
    ]
    if len(others) > MOST_TOLD:
        more = f"{many(len(others) - MOST_TOLD, 'more journal')} set aside on other hosts"
        told.append(Problem(more, "`runwatch status --json` names them"))
    return told


def _texts(said: object) -> list[str]:
    return [str(each) for each in said] if isinstance(said, list) else []


def named_in(environ: Mapping[str, str] = os.environ) -> Named:
    """By the agent's settings; what is wrong with them is told, not raised."""
    from runwatch.agent.settings import AgentSettings
    from runwatch.settings import load

    try:
        loaded = load(AgentSettings, section="agent", environ=environ)
    except UsageError as error:
        head = environ.get("RUNWATCH_HEAD", "")
        source = "environment RUNWATCH_HEAD" if head else ""
        return Named(head, source, environ.get("RUNWATCH_TOKEN", ""), problem=str(error))
    values = loaded.values
    return Named(
        values.head,
        loaded.sources["head"],
        values.token,
        values.ca,
        values.host,
        values.inherit_seconds,
        values.budget_bytes,
    )
