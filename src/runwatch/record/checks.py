"""What a value in a message must be: types, ranges, lengths and counts, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

MOST_ITEMS: Final = 100_000
"""The most values in one body, nested ones included."""
MOST_RANKS: Final = 1 << 20
LATEST_NS: Final = 1 << 62
"""A time in the year 2116.  Two times differ by no more than this either."""
LONGEST_NAME: Final = 4_096
LONGEST_TEXT: Final = 1 << 16
INT64: Final = 1 << 63

Check = Callable[[Any], str]
"""Returns what the value must be, in words, if it is something else; "" if the value is right."""


def whole(low: int, high: int) -> Check:
    words = f"a whole number from {low} to {high}"
    return lambda value: "" if type(value) is int and low <= value <= high else words


def number(low: float = -1e18, high: float = 1e18) -> Check:
    def check(value: Any) -> str:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if is_number and low <= value <= high else f"a number from {low:g} to {high:g}"

    return check


def text(longest: int) -> Check:
    words = f"a text of up to {longest} characters"
    return lambda value: "" if isinstance(value, str) and len(value) <= longest else words


def printable(longest: int) -> Check:
    """No lone surrogates: no message can hold them.  No control characters: no terminal should
    print them."""
    words = f"a printable text of up to {longest} characters"
    is_text = text(longest)
    return lambda value: "" if not is_text(value) and value.isprintable() else words


def flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def anything(value: Any) -> str:
    return ""


def many(each: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) > most:
            return f"a list of up to {most}"
        wrong = next(filter(None, map(each, value)), "")
        return wrong and f"a list, each of it {wrong}"

    return check


def mapped(each: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, dict) or len(value) > most:
            return f"an object of up to {most}"
        wrong = next(filter(None, map(each, value.values())), "")
        return wrong and f"an object, each of it {wrong}"

    return check


def either(*checks: Check) -> Check:
    def check(value: Any) -> str:
        wrong = [each(value) for each in checks]
        return " or ".join(wrong) if all(wrong) else ""

    return check


def fields(**checks: Check) -> Check:
    """An object.  A field that is missing or null passes."""

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return "an object"
        for name, each in checks.items():
            inner = value.get(name)
            if inner is not None and (wrong := each(inner)):
                return f"an object whose {name} is {wrong}"
        return ""

    return check


NAME: Final = text(LONGEST_NAME)
TEXT: Final = text(LONGEST_TEXT)
RANK: Final = whole(-1, MOST_RANKS)
COUNT: Final = whole(0, LATEST_NS)
TIME: Final = whole(0, LATEST_NS)
OFFSET: Final = whole(-LATEST_NS, LATEST_NS)
STEP: Final = whole(-INT64, INT64 - 1)
SECONDS: Final = number(-1e10, 1e10)
