"""How a message becomes a JSON object, and how it is read back.

A message is a frozen dataclass below `Message`.  Each field is declared with what the door checks:

    @dataclass(frozen=True, slots=True)
    class Fork(Message):
        KIND: ClassVar = "fork"

        parent_journal: str = checked(NAME, "")
        detached: bool = checked(flag, False)

Every field has a default, which stands for "nobody said".  `body` leaves out what is None, and `of`
reads a missing field, a null and a wrong value as the default: an older writer is read, and so is a
newer one, whose other fields are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from dataclasses import fields as fields_of
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from runwatch.errors import UsageError
from runwatch.record.checks import NAME, Check, fields, many, mapped

_FORM = "form"


class _Form(NamedTuple):
    """How one field travels."""

    check: Check
    """What the door asks of it."""
    read: Callable[[Any], Any]
    """The value that a reader gets; None: as if nobody had said it."""
    write: Callable[[Any], Any] | None = None
    """What goes into the body; without one, the value itself."""
    unless_empty: bool = False
    """It is left out of the body while it is empty or false."""


class Message:
    """The body of an event, of a command or of an answer; or a part of one."""

    __slots__ = ()
    KIND: ClassVar[str] = ""
    """The kind of the event or command.  Parts of other messages have none."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        values = {}
        for name, form in _forms(cls):
            value = body.get(name)
            if value is not None and (value := form.read(value)) is not None:
                values[name] = value
        return cls(**values)

    def body(self) -> dict[str, Any]:
        body = {}
        for name, form in _forms(type(self)):
            value = getattr(self, name)
            if value is not None and (value or not form.unless_empty):
                body[name] = value if form.write is None else form.write(value)
        return body


M = TypeVar("M", bound=Message)
_known: dict[type[Message], tuple[tuple[str, _Form], ...]] = {}


def _forms(kind: type[Message]) -> tuple[tuple[str, _Form], ...]:
    forms = _known.get(kind)
    if forms is None:
        declared: Any = fields_of(kind)  # type: ignore[arg-type]
        forms = _known[kind] = tuple((each.name, each.metadata[_FORM]) for each in declared)
    return forms


def checks_of(kind: type[Message]) -> dict[str, Check]:
    """What the door asks of each field."""
    return {name: form.check for name, form in _forms(kind)}


def read_strictly(kind: type[M], body: Mapping[str, Any]) -> M:
    """A command, which is refused and not guessed at.  Raises UsageError for a wrong field."""
    for name, check in checks_of(kind).items():
        value = body.get(name)
        if value is not None and (wrong := check(value)):
            raise UsageError(f"{name} {str(value)[:80]!r}: not {wrong}")
    return kind.of(body)


# ── how fields are declared ────────────────────────────────────────────────────────────────────


def checked(check: Check, default: Any = None) -> Any:
    """A plain value."""

    def read(value: Any) -> Any:
        return None if check(value) else value

    return field(default=default, metadata={_FORM: _Form(check, read)})


def formed(
    check: Check,
    default: Any,
    read: Callable[[Any], Any],
    write: Callable[[Any], Any],
) -> Any:
    """A value that is read or written in a way of its own; `read` returns None for a wrong one."""
    return field(default=default, metadata={_FORM: _Form(check, read, write)})


def unless_empty(declared: Any) -> Any:
    """The same field, which is left out of the body while it is empty or false."""
    form = declared.metadata[_FORM]._replace(unless_empty=True)
    default, factory = declared.default, declared.default_factory
    return field(default=default, default_factory=factory, metadata={_FORM: form})


def one_of(words: tuple[str, ...], default: str) -> Any:
    """One of these words.  A newer writer may know others: the door lets them in, and a reader
    takes them for the default."""

    def read(value: Any) -> Any:
        return value if value in words else None

    return field(default=default, metadata={_FORM: _Form(NAME, read)})


def listed(each: Check, most: int = 10_000, default: tuple[Any, ...] | None = ()) -> Any:
    """A tuple of plain values; a reader passes over those that are wrong."""

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return None
        return tuple(item for item in value[:most] if not each(item))

    return field(default=default, metadata={_FORM: _Form(many(each, most), read, list)})


def mapping(each: Check, most: int = 10_000) -> Any:
    """Plain values by name; a reader passes over those that are wrong."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return None
        return {str(name): item for name, item in value.items() if not each(item)}

    return field(default_factory=dict, metadata={_FORM: _Form(mapped(each, most), read, dict)})


def part(kind: type[Message]) -> Any:
    """Another message, or None."""

    def read(value: Any) -> Any:
        return kind.of(value) if isinstance(value, Mapping) else None

    form = _Form(fields(**checks_of(kind)), read, lambda value: value.body())
    return field(default=None, metadata={_FORM: form})


def parts(kind: type[Message], most: int = 10_000) -> Any:
    """A tuple of other messages."""

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return None
        return tuple(kind.of(item) for item in value[:most] if isinstance(item, Mapping))

    def write(value: Any) -> Any:
        return [part.body() for part in value]

    form = _Form(many(fields(**checks_of(kind)), most), read, write)
    return field(default=(), metadata={_FORM: form})
