"""The head's health."""

from __future__ import annotations

from runwatch._version import __version__
from runwatch.head.http.types import AsideInfo, Health, plain
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
    )


def public_health(reading: Reading) -> Health:
    problem = reading.store.health().problem or reading.standing().problem
    return Health(status="degraded" if problem else "ok")


def _aside_info(aside: LeftAlone) -> AsideInfo:
    return AsideInfo(
        host=plain(aside.host),
        journal=plain(aside.journal),
        why=plain(aside.why),
        version=plain(aside.version),
        since_ns=aside.since_ns,
    )
