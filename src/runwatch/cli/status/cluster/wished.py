"""What labels ask for, and whether a pod had them when it was created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from runwatch.cli.status.cluster.told import OURS, PART_OF_LABEL, name
from runwatch.k8s.names import INJECTED, WATCH, WATCH_ORIGINAL, WATCHED
from runwatch.kube import Thing, created_ns, labels, moment_ns, notes, part, parts, text

_WHOLE: Final = "."
"""Of managed fields: that there is such a map, whatever is in it."""


class Wish(NamedTuple):
    """What a label says, and where it stands."""

    watched: bool
    on: str
    holder: Thing
    key: str


def wished(pod: Thing, owners: Sequence[Thing], space: Thing) -> Wish | None:
    """The nearest label decides; None without any."""
    return next(wishes_of(pod, owners, space), None)


def wishes_of(pod: Thing, owners: Sequence[Thing], space: Thing) -> Iterator[Wish]:
    """The nearest first."""
    for holder, on in [
        (pod, "the pod"),
        *((each, f"{text(each, 'kind')} {name(each)}") for each in owners),
        (space, "its namespace"),
    ]:
        for key in (WATCH, WATCH_ORIGINAL):
            value = str(labels(holder).get(key, "")).lower()
            if value in ("true", "false"):
                yield Wish(value == "true", on, holder, key)


def is_ours(pod: Thing) -> bool:
    return labels(pod).get(PART_OF_LABEL) == OURS


def is_injected(pod: Thing) -> bool:
    return labels(pod).get(WATCHED) == "true" or INJECTED in notes(pod)


def had_label(pod: Thing, wish: Wish) -> bool | None:
    """Whether the label was there when the pod was created; None: nobody can say."""
    created, holder_ns = created_ns(pod), created_ns(wish.holder)
    found = _set(wish.holder, wish.key)
    if found is None:  # a workload's pods come as soon as it is there
        return True if wish.holder is not pod and holder_ns == created else None
    set_ns, is_alone = found
    if created is None or set_ns is None:
        return None
    if set_ns < created or set_ns == holder_ns:
        return True
    return False if is_alone and set_ns > created else None


def _set(thing: Thing, key: str) -> tuple[int | None, bool] | None:
    """When who set the label changed a field last, and whether it has no other; None: not told."""
    for each in parts(part(thing, "metadata").get("managedFields")):
        fields = part(each, "fieldsV1")
        if f"f:{key}" in part(fields, "f:metadata", "f:labels"):
            is_alone = all(
                part(fields, *path).keys() <= {only, _WHOLE}
                for path, only in (
                    ((), "f:metadata"),
                    (("f:metadata",), "f:labels"),
                    (("f:metadata", "f:labels"), f"f:{key}"),
                )
            )
            return moment_ns(each.get("time")), is_alone
    return None
