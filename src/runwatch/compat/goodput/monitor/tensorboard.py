"""A job's goodput and badput under the tags that the original's users look for."""

from __future__ import annotations

from collections.abc import Mapping

from runwatch.exports.event_files import Scalar, scalar_of


def job_scalars(
    goodput: float, badput: Mapping[str, float | Mapping[str, float]], step: int
) -> list[Scalar]:
    """A job's goodput and badput, in percent, under the tags that its users look for."""
    scalars = [scalar_of("goodput/goodput", step, goodput)]
    for source, percent in badput.items():
        tag = f"badput/{source.lower()}"
        if isinstance(percent, Mapping):
            scalars += [scalar_of(f"{tag}/{part.lower()}", step, x) for part, x in percent.items()]
        else:
            scalars.append(scalar_of(tag, step, percent))
    return scalars
