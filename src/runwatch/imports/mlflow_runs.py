"""What MLflow says of a run beside its metrics, whichever store it lies in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from runwatch.imports.growing import identity
from runwatch.imports.items import Begun, Ended, Item, Mark, Reached, Settings, is_time

DEFAULT: Final = "Default"
"""The experiment of whoever chose none."""
_ABOUT: Final = "about"
_ENDED: Final[Mapping[str, Literal["completed", "failed", "killed"]]] = {
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "killed",
}


@dataclass(frozen=True, slots=True)
class About:
    id: str
    name: str = ""
    status: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    experiment: str = ""
    user: str = ""
    is_deleted: bool = False
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    """The run that this one is nested in."""

    @property
    def group(self) -> str:
        """A nested run is grouped with its siblings, another one with its experiment."""
        return self.parent or ("" if self.experiment == DEFAULT else self.experiment)


def told(about: About, marks: Mapping[str, Mark]) -> Iterator[Item]:
    """The start, the parameters, the tags and the end, if any of that is new."""
    digest = identity(repr(asdict(about)))
    if (marks.get(_ABOUT) or {}).get("digest") == digest:
        return
    start_ns = _nanoseconds(about.start_ms)
    if start_ns is not None:
        yield Begun(start_ns, user=about.user)
    tags = {key: value for key, value in about.tags.items() if key != "mlflow.log-model.history"}
    known = {
        "run_id": about.id,
        "experiment": about.experiment,
        "parent": about.parent,
        "tags": tags,
    }
    yield Settings("user", dict(about.params), start_ns)
    yield Settings("user", {"mlflow": {k: v for k, v in known.items() if v}}, start_ns)
    if (status := _ENDED.get(about.status)) is not None:
        reason = f"MLflow says {about.status}" if status != "completed" else ""
        yield Ended(status, _nanoseconds(about.end_ms), reason=reason)
    yield Reached(_ABOUT, {"digest": digest})


def _nanoseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or not is_time(milliseconds * 1_000_000):
        return None
    return milliseconds * 1_000_000
