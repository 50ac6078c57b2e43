"""`runwatch status`: which head, where its address comes from, whether it answers, its health."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.address import (
    ADDRESS_FILE,
    Listening,
    beside,
    is_same_place,
    page_of,
    read_quietly,
    token_for,
)
from runwatch.cli.pictures.moments import time as moment
from runwatch.cli.status.types import Answer, Problem, Section, many, user_name, whose
from runwatch.errors import UsageError
from runwatch.files import Folder
from runwatch.journal.heads import NamedHead
from runwatch.journal.liveness import read_stat, this_host
from runwatch.settings import read_token

MOST_NAMED: Final = 5
"""The most journals that are named one by one."""


@dataclass(frozen=True, slots=True)
class Named:
    """The head that this user's settings name for agents."""

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
class Checked:
    section: Section
    named: Named
    serves: bool = False
    """Whether a head that answers serves this directory."""


def look(root: Path, named: Named, others: Sequence[NamedHead] = ()) -> Checked:
    """`others`: heads that journals or the agent name; the first one counts if nobody else does."""
    note = read_quietly(root)
    if named.head:
        return Checked(_named(root, named, note), named)
    if others and note is None:
        named = _by_journal(named, others[0])
        return Checked(_named(root, named, note), named)
    if note is not None:
        section = _noted(root, note[0], note[1], named.ca)
        serves = section.facts["state"] in ("well", "degraded", "token")
        return Checked(section, named, serves=serves)
    return Checked(_nobody(root, named), named)


def _by_journal(named: Named, head: NamedHead) -> Named:
    token = named.token or head.token
    if not token and head.token_file:
        with suppress(UsageError):
            token = read_token(Path(head.token_file))
    ca = named.ca or (Path(head.ca) if head.ca else None)
    return replace(named, head=head.address, source="journals here", token=token, ca=ca)


def _nobody(root: Path, named: Named) -> Section:
    facts = _facts("", "directory", Answer("none"))
    lines = [
        "none is named (RUNWATCH_HEAD, or head in config.toml), and none serves this directory",
        "commands read the directory themselves; `runwatch ui` shows it in a browser",
    ]
    problems = _settings_problem(named)
    if (owner := _strangers_note(root)) is not None:
        problems.append(
            Problem(
                f"{root / ADDRESS_FILE} belongs to {user_name(owner)} and is not trusted",
                "remove it, or ask its owner to",
            )
        )
    return Section("head", facts, lines, problems)


def _strangers_note(root: Path) -> int | None:
    """The owner of the address file, if it is somebody whom we do not trust here."""
    try:
        with Folder.at(root) as folder:
            owner = folder.stat(ADDRESS_FILE).st_uid
            return None if owner in folder.known() else owner
    except OSError:
        return None


def _settings_problem(named: Named) -> list[Problem]:
    if not named.problem:
        return []
    return [Problem(named.problem, "correct it: programs and agents fail because of it, too")]


def _named(root: Path, named: Named, note: tuple[Listening, int] | None) -> Section:
    """The head that the settings name, or journals do."""
    problems = _settings_problem(named)
    try:
        address = page_of(named.head, root)
    except (UsageError, ValueError) as error:
        problems.append(Problem(str(error), f"correct it: {named.source}"))
        return Section(
            "head", _facts(named.head, named.source, Answer("unreachable")), [], problems
        )
    answer = _ask(address, token_for(address, root, named.token, quietly=True), named.ca)
    if answer.state in ("tls", "other") and (other := beside(address)):
        # The port of agents, which speaks no HTTP/1: RUNWATCH_HEAD named that port once.
        second = _ask(other, token_for(other, root, named.token, quietly=True), named.ca)
        if second.health is not None:
            address, answer = other, second
    lines: list[str] = []
    if answer.health is None:
        problems.append(_unreached(address, answer, named))
    else:
        lines, more = _health_words(address, answer, answer.health, f"from {named.source}")
        problems += more
    if note is None or not note[0].http or is_same_place(note[0].http, address):
        return Section("head", _facts(address, named.source, answer), lines, problems)
    here = _noted(root, *note, named.ca)
    if not here.problems:
        lines.append(f"another head serves this directory, and answers: {note[0].http}")
    problems += here.problems
    facts = _facts(address, named.source, answer, here.facts["note"])
    return Section("head", facts, lines, problems)


def _ask(address: str, token: str, ca: Path | None) -> Answer:
    from runwatch.cli.status.asking import ask  # imports HTTP and TLS: only when needed

    return ask(address, token, ca)


def _unreached(address: str, answer: Answer, named: Named) -> Problem:
    todo = {
        "refused": "start it there (`runwatch head`), or correct the address",
        "silent": "check that the machine is up and that no firewall blocks you",
        "name": "correct the address",
        "tls": "set RUNWATCH_CA to the certificate to check it with; http:// and grpc:// use no "
        "TLS, https:// and grpcs:// do",
        "other": "correct the address, or stop the program that has its port",
    }.get(answer.state, "check that the machine is up and that the network reaches it")
    return Problem(f"{address} (from {named.source}) does not answer: {answer.why}", todo)


def _noted(root: Path, note: Listening, owner: int, ca: Path | None) -> Section:
    """The head whose address file is in the directory; it may have ended."""
    about = _note_facts(note, owner)
    began = f" since {moment(note.since_ns)}" if note.since_ns else ""
    where = f" on {note.host}" if note.host else ""
    if not note.http:
        facts = _facts("", ADDRESS_FILE, Answer("unreachable", "it has no HTTP port"), about)
        who = f"process {note.pid}{where}{began}, of {user_name(owner)}, without an HTTP port"
        return Section("head", facts, [who, "so its health is unknown"])
    answer = _ask(note.http, token_for(note.http, root, quietly=True), ca)
    if answer.health is not None:
        source = f"from {ADDRESS_FILE} in the directory"
        lines, problems = _health_words(note.http, answer, answer.health, source)
        lines.append(f"process {note.pid}{where}{began}, of {whose(owner)}")
        return Section("head", _facts(note.http, ADDRESS_FILE, answer, about), lines, problems)
    stale = Answer("stale", answer.why)
    ended = "; that process has ended" if about["runs"] is False else ""
    what = (
        f"{ADDRESS_FILE} says that process {note.pid}{where} of {user_name(owner)} serves this "
        f"directory at {note.http}{began}, but it does not answer: {answer.why}{ended}"
    )
    todo = (
        f"start it again (`runwatch ui --dir {root}` or `runwatch head --dir {root}`), or remove "
        f"{root / ADDRESS_FILE} if it is gone for good"
    )
    facts = _facts(note.http, ADDRESS_FILE, stale, about)
    return Section("head", facts, [], [Problem(what, todo)])


def _note_facts(note: Listening, owner: int) -> dict[str, Any]:
    """`runs`: whether the process runs; None if it is on another host."""
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
    """The fields we use, checked: whatever answers there may send anything."""
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
        "forwards": _forwards(health),
    }


def _forwards(health: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the head sends on to other services."""
    told = health.get("forwards")
    listed = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    words = ("to", "name", "lost_why", "problem", "todo", "note")
    counts = ("sent", "waiting", "lost")
    times = ("waiting_since_ns", "problem_since_ns")
    return [
        {name: str(each.get(name) or "") for name in words}
        | {name: _count(each.get(name)) for name in counts}
        | {name: _count(each.get(name)) or None for name in times}
        for each in listed
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _health_words(
    address: str, answer: Answer, health: Mapping[str, Any], source: str
) -> tuple[list[str], list[Problem]]:
    """Sentences and problems of a head that answered."""
    lines = [f"{address} ({source})"]
    if answer.state == "token":
        todo = (
            "set RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE; the head prints its token when it starts, "
            "and `runwatch token create` makes others"
        )
        lines.append(f"answers, state {health['status']}; it reports more only to a valid token")
        return lines, [Problem(answer.why, todo)]
    version = str(health["version"])
    ours = "the same as ours" if version == __version__ else f"ours is {__version__}"
    lines.append(f"answers; version {version}, {ours}")
    forwards = _forwards(health)
    lines += _counts(health) + [_sent_words(each) for each in forwards]
    return lines, _ailments(health) + [_held_up(each) for each in forwards if each["problem"]]


def _sent_words(forward: Mapping[str, Any]) -> str:
    words = f"{forward['name']}: {forward['sent']:,} sent"
    if forward["waiting"] and not forward["problem"]:
        words += f", {forward['waiting']:,} on their way"
    if forward["lost"]:
        words += f", {forward['lost']:,} lost: {forward['lost_why']}"
    return f"{words}; {forward['note']}" if forward["note"] else words


def _held_up(forward: Mapping[str, Any]) -> Problem:
    since_ns, oldest_ns = forward["problem_since_ns"], forward["waiting_since_ns"]
    since = f" since {moment(since_ns)}" if since_ns else ""
    waiting = f"; {forward['waiting']:,} wait" if forward["waiting"] else ""
    if waiting and oldest_ns:
        waiting += f", the oldest of {moment(oldest_ns)}"
    what = f"nothing goes to {forward['name']}{since}: {forward['problem']}{waiting}"
    return Problem(what, forward["todo"] or "it is kept, and sent later")


def _counts(health: Mapping[str, Any]) -> list[str]:
    refused = _count(health.get("records_refused"))
    return [f"{many(refused, 'malformed record')} left out since it started"] if refused else []


def _ailments(health: Mapping[str, Any]) -> list[Problem]:
    problems = []
    if health.get("problem"):
        todo = "it continues by itself when that is over; until then nodes keep their records"
        problems.append(Problem(f"it accepts no data: {health['problem']}", todo))
    notes = _texts(health.get("notes"))
    return problems + [Problem(note, _todo_of(note) or "see the head's log") for note in notes]


def _todo_of(note: str) -> str:
    if " are allowed (" in note:
        return "raise that setting and restart the head, or delete runs (`runwatch delete`)"
    if "nothing is deleted for a day" in note:
        return "correct the head's clock if it is wrong"
    return ""


def _others(head: Section) -> list[Problem]:
    away = f"{head.facts['address']} (from {head.facts['from']}) does not answer: "
    return [problem for problem in head.problems if not problem.what.startswith(away)]


def only_its_page_is_away(head: Section) -> Section:
    """For a head that an agent is connected to: on nodes often only the agents' port is open."""
    if head.facts["state"] not in ("refused", "silent", "unreachable"):
        return head
    lines = [
        f"{head.facts['address']} (from {head.facts['from']}) does not answer from here: "
        f"{head.facts['why']}",
        "but the agent is connected to the head; only its health is unknown here",
    ]
    return replace(head, lines=[*lines, *head.lines], problems=_others(head))


def asides_elsewhere(health: Mapping[str, Any], known: Sequence[str]) -> list[Problem]:
    """Journals that the head has set aside, except those in `known`."""
    others = [each for each in health["aside"] if each.get("journal") not in known]
    problems = [
        Problem(
            f"journal {each.get('journal')} of host {each.get('host')} is set aside: "
            f"{each.get('why')}",
            _todo_of(str(each.get("why")))
            or "other journals go on; this one is retried, at the latest by the next version",
        )
        for each in others[:MOST_NAMED]
    ]
    if len(others) > MOST_NAMED:
        more = f"{many(len(others) - MOST_NAMED, 'more journal')} set aside on other hosts"
        problems.append(Problem(more, "`runwatch status --json` names them"))
    return problems


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def named_in(environ: Mapping[str, str] = os.environ) -> Named:
    """The head in the agent's settings; an error in them is returned, not raised."""
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
