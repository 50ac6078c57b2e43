"""The head's health."""

from __future__ import annotations

from msgspec import UNSET

from runwatch._version import __version__
from runwatch.head.forward.report import Report
from runwatch.head.http.types import AsideInfo, ForwardInfo, Health, plain
from runwatch.head.reading import LeftAlone, Reading


def health(reading: Reading) -> Health:
    store, standing = reading.store.health(), reading.standing()
    problem = store.problem or standing.problem
    return Health(
        status="degraded" if problem else "ok",
        version=__version__,
        engine=store.engine,
        schema_version=store.schema_version,
        hot_points=store.hot_points,
        blocks=store.blocks,
        bytes_on_disk=store.bytes_on_disk,
        problem=problem,
        notes=[*store.notes, *standing.notes],
        aside=[_aside_info(aside) for aside in reading.aside()],
        records_refused=standing.records_refused,
        records_dropped=store.records_dropped,
        forwards=[_forward_info(report) for report in standing.forwards] or UNSET,
    )


def public_health(reading: Reading) -> Health:
    problem = reading.store.health().problem or reading.standing().problem
    return Health(status="degraded" if problem else "ok")


def _forward_info(report: Report) -> ForwardInfo:
    return ForwardInfo(
        to=report.to,
        name=report.name,
        sent=report.sent,
        waiting=report.waiting,
        waiting_since_ns=report.waiting_since_ns,
        lost=report.lost,
        lost_why=plain(report.lost_why),
        problem=plain(report.problem),
        todo=plain(report.todo),
        problem_since_ns=report.problem_since_ns,
        note=plain(report.note),
    )


def _aside_info(aside: LeftAlone) -> AsideInfo:
    return AsideInfo(
        host=plain(aside.host),
        journal=plain(aside.journal),
        why=plain(aside.why),
        version=plain(aside.version),
        since_ns=aside.since_ns,
    )
