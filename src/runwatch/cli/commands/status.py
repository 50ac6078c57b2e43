"""Check Runwatch on this machine for you: the head, the agent, unsent records, the disk, drop-ins.

With --cluster: of a Kubernetes cluster, as `kubectl` sees it: what is installed, which nodes have
no agent, which pods are labelled and not watched, and why.

It prints what is wrong and what to do about it.  It starts, stops and changes nothing.  The exit
code is 0 if all is well, and 1 if something needs attention.

example:
  runwatch status
  runwatch status --dir /var/lib/runwatch
  runwatch status --cluster --context prod --namespace team-a
  runwatch status --json | jq .attention
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.cli.cluster import kubectl
from runwatch.cli.dropins.looking import look as look_at_dropins
from runwatch.cli.pictures.progress import progress
from runwatch.cli.status import agent as status_agent
from runwatch.cli.status import disk as status_disk
from runwatch.cli.status import dropins as status_dropins
from runwatch.cli.status import head as status_head
from runwatch.cli.status import waiting as status_waiting
from runwatch.cli.status.picture import picture
from runwatch.cli.status.types import VERSION, Section, user_name
from runwatch.errors import UsageError
from runwatch.journal.heads import NamedHead
from runwatch.journal.liveness import this_host
from runwatch.sdk.switches import is_off
from runwatch.settings import runwatch_dir

NEEDS_ATTENTION: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="a Runwatch directory (default $RUNWATCH_DIR)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--cluster", action="store_true", help="of a cluster, asked by kubectl")
    kubectl.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.cluster:
        return _of_cluster(arguments)
    if arguments.context or arguments.kubeconfig or arguments.namespace:
        raise UsageError("--context, --kubeconfig and --namespace go with --cluster")
    root = Path(os.path.abspath(arguments.dir or runwatch_dir()))
    sections = look(root)
    well = not any(section.problems for section in sections)
    if arguments.json:
        print(json.dumps(_answer(sections, _here(root, sections)), indent=2))
    else:
        print(
            picture(f"for {user_name(os.geteuid())} on {this_host()}, directory {root}", sections)
        )
    return 0 if well else NEEDS_ATTENTION


def _of_cluster(arguments: argparse.Namespace) -> int:
    from runwatch.cli.status import cluster
    from runwatch.cli.status.cluster.asking import ask

    with progress("asking the cluster"):
        told = ask(kubectl.of(arguments), time.time_ns())
    sections = cluster.sections(told)
    well = not any(section.problems for section in sections)
    if arguments.json:
        facts = {section.name: section.facts for section in sections}
        unread = [section.name for section in sections if section.is_unread]
        print(json.dumps(_answer(sections, {"cluster": facts, "unread": unread}), indent=2))
    else:
        print(picture(f"in {cluster.words(arguments.context, arguments.namespace)}", sections))
    return 0 if well else NEEDS_ATTENTION


def look(root: Path) -> list[Section]:
    named = status_head.named_in()
    host = named.host or this_host()
    agent = status_agent.find(root, host)
    note = agent.note
    journals = status_waiting.survey(
        root, host, note.reached if note else {}, note.reached_at if note else {}
    )
    # A running agent knows where it sends; the next one is started with our settings.
    sends_to = agent.own_head if agent.runs and note is not None else named.head
    others = [head.address for head in agent.heads] + list(journals.heads)
    checked = status_head.look(root, named, [journals.heads.get(a, NamedHead(a)) for a in others])
    waiting = status_waiting.section(
        journals,
        agent,
        host=host,
        head=sends_to,
        serves=checked.serves,
        inherit_seconds=named.inherit_seconds,
    )
    head = checked.section
    if agent.sends_to(checked.named.head):
        head = status_head.only_its_page_is_away(head)
    return [
        _with_asides(head, waiting),
        status_agent.section(
            agent,
            living=journals.living,
            off=is_off("RUNWATCH_AGENT"),
            waits=waiting.facts["journals"] > 0,
        ),
        waiting,
        status_disk.section(root, journals_bytes=journals.bytes, budget_bytes=named.budget_bytes),
        status_dropins.section(look_at_dropins()),
    ]


def _with_asides(head: Section, waiting: Section) -> Section:
    """Add journals that the head has set aside, except those that `waiting` already names."""
    health = head.facts["health"]
    if health is None:
        return head
    known = [each["journal"] for each in waiting.facts["aside"]]
    more = status_head.asides_elsewhere(health, known)
    return replace(head, problems=[*head.problems, *more])


def _here(root: Path, sections: Sequence[Section]) -> dict[str, Any]:
    return {"directory": str(root), **{section.name: section.facts for section in sections}}


def _answer(sections: Sequence[Section], facts: Mapping[str, Any]) -> dict[str, Any]:
    attention = [
        {"about": section.name, **asdict(problem)}
        for section in sections
        for problem in section.problems
    ]
    return {
        "version": VERSION,
        "well": not attention,
        "time_ns": time.time_ns(),
        "runwatch": __version__,
        "host": this_host(),
        "user": user_name(os.geteuid()),
        **facts,
        "attention": attention,
    }
