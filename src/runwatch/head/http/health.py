"""How the head is."""

from __future__ import annotations

from runwatch._version import __version__
from runwatch.head.http.types import AsideInfo, Health, plain
from runwatch.head.reading import LeftAlone, Reading


def health(reading: Reading) -> Health:
    found, standing = reading.store.health(), reading.standing()
    problem = found.problem or standing.problem
    return Health(
        status="degraded" if problem else "ok",
        version=__version__,
        engine=found.engine,
        schema_version=found.schema_version,
        hot_points=found.hot_points,
        blocks=found.blocks,
        bytes_on_disk=found.bytes_on_disk,
        problem=problem,
        notes=[*found.notes, *standing.notes],
        aside=[_aside_info(aside) for aside in reading.aside()],
        records_refused=standing.records_refused,
        records_dropped=found.records_dropped,
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
