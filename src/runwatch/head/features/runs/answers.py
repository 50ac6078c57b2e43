"""One run, as API shapes: one function per route, with `Reading` as the only source."""

from __future__ import annotations

from collections.abc import Collection

from runwatch.errors import NotFound
from runwatch.head.features.runs.types import (
    ConfigsInfo,
    EventInfo,
    EventList,
    ProcessInfo,
    ProcessList,
    RunDetail,
)
from runwatch.head.http.parameters import Given, check_range
from runwatch.head.http.shapes import MOST_EVENT_BYTES, attempt_infos, event_info, run_fields
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.views.runs import ProcessState


def run(reading: Reading, given: Given) -> RunDetail:
    id = reading.run(given["run"])
    states = reading.processes(id)
    if not states:
        raise NotFound(f"run {id} is empty: its command belongs to a run of another name")
    card = reading.card_of(id, states)
    limit = plain(reading.standing().limit(id))
    return RunDetail(**run_fields(card), history=attempt_infos(states, id), limit=limit)


def configs(reading: Reading, given: Given) -> ConfigsInfo:
    id = reading.run(given["run"])
    configs_of_run = reading.configs(id)
    return ConfigsInfo(
        run=id,
        user=plain(configs_of_run.user),
        software=plain(configs_of_run.software),
        system=plain(configs_of_run.system),
    )


def processes(reading: Reading, given: Given) -> ProcessList:
    id = reading.run(given["run"])
    return ProcessList(run=id, processes=[_process_info(state) for state in reading.processes(id)])


def _process_info(state: ProcessState) -> ProcessInfo:
    return ProcessInfo(
        journal=state.journal,
        host=state.host,
        pid=state.pid,
        rank=state.rank,
        world_size=state.world_size,
        attempt=state.attempt,
        state=state.state,
        reason=plain(state.reason),
        started_ns=state.started_ns,
        ended_ns=state.ended_ns,
        last_ns=state.last_ns,
        exit_code=state.exit_code,
        signal=state.signal,
        out_of_memory=state.out_of_memory,
        role="launcher" if state.is_launcher else "process",
        pod=plain(state.pod),
        pod_namespace=plain(state.pod_namespace),
        pod_uid=plain(state.pod_uid),
        node=plain(state.node),
        workload=plain(state.workload),
        workload_uid=plain(state.workload_uid),
    )


def events(reading: Reading, given: Given, hidden: Collection[str] = ()) -> EventList:
    """`hidden`: kinds that the caller does not see."""
    id = reading.run(given["run"])
    check_range(given)
    rows = reading.store.events(
        id,
        kinds=list(given["kind"]) or None,
        start_ns=given["start"],
        end_ns=given["end"],
        limit=given["limit"],
        newest_first=given["newest_first"],
        most_bytes=MOST_EVENT_BYTES,
    )
    return EventList(
        run=id,
        events=[
            event_info(EventInfo, event, plain(event.body))
            for event in rows
            if event.kind not in hidden
        ],
    )
