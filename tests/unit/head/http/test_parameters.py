from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.head.http.parameters import INT64_MAX, INT64_MIN, BadRequest, Parameter, parse

NUMBER = Parameter("number", "integer", "a number", minimum=-5, maximum=5, default=1)
WIDE = Parameter("wide", "integer", "any number")
TEXT = Parameter("text", "string", "some text")
MANY = Parameter("many", "string", "some texts", repeated=True, shortest=1)
CHOICE = Parameter("choice", "string", "one of", choices=("a", "b"), default="a")
FLAG = Parameter("flag", "boolean", "yes or no", default=False)
NEEDED = Parameter("needed", "string", "must be there", required=True)
PATH = Parameter("run", "string", "a run", "path", shortest=1)
ALL = (NUMBER, WIDE, TEXT, MANY, CHOICE, FLAG)
few = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def test_defaults() -> None:
    assert parse(ALL, b"", {}) == {
        "number": 1,
        "wide": None,
        "text": None,
        "many": (),
        "choice": "a",
        "flag": False,
    }


def test_values() -> None:
    found = parse(
        (*ALL, PATH),
        b"number=-5&text=a+b%20c%26&many=x&many=y&choice=b&flag=true",
        {"run": "r/1"},
    )
    assert found == {
        "number": -5,
        "wide": None,
        "text": "a b c&",
        "many": ("x", "y"),
        "choice": "b",
        "flag": True,
        "run": "r/1",
    }


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("number=6", "from -5 to 5"),
        ("number=", "whole number"),
        ("number=1.0", "'1.0'"),
        ("number=0x1", "whole number"),
        ("number=1_0", "whole number"),
        ("number= 1", "whole number"),
        (f"wide={INT64_MAX + 1}", "whole number"),
        (f"wide={INT64_MIN - 1}", "whole number"),
        ("text=a&text=b", "2 times"),
        ("many=", "0 characters; it may have 1 to 512"),
        ("text=" + "é" * 513, "513 characters"),
        ("text=%7f", "control"),
        ("text=%0a", "control"),
        ("choice=c", "not one of a, b"),
        ("flag=True", "neither"),
        ("text=%c3%28", "not UTF-8"),
        ("tekst=1", "unknown parameter 'tekst'; this route takes: number, wide"),
        ("&", "unknown parameter ''"),
    ],
)
def test_refusals(query: str, says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(ALL, query.encode(), {})
    assert says in str(refused.value)
    assert len(str(refused.value)) < 300


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(BadRequest, match="needed is missing: must be there"):
        parse([NEEDED], b"", {})


@few
@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(query: bytes) -> None:
    try:
        found = parse(ALL, query, {})
    except BadRequest:
        return
    assert -5 <= found["number"] <= 5 and found["choice"] in ("a", "b")


@few
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "number": st.integers(-5, 5),
            "wide": st.integers(INT64_MIN, INT64_MAX),
            "text": st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20),
            "many": st.lists(st.text("aé /+&=%", min_size=1), min_size=1, max_size=4),
        },
    )
)
def test_what_is_said_is_heard(said: dict[str, Any]) -> None:
    found = parse(ALL, urlencode(said, doseq=True, quote_via=quote).encode(), {})
    for name, value in said.items():
        assert found[name] == (tuple(value) if isinstance(value, list) else value)


def test_schemas_state_the_ranges() -> None:
    assert NUMBER.schema() == {
        "type": "integer",
        "minimum": -5,
        "maximum": 5,
        "format": "int64",
        "default": 1,
    }
    assert CHOICE.schema() == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert MANY.schema()["items"]["minLength"] == 1
    assert MANY.schema()["minItems"] == 1
    assert FLAG.schema() == {"type": "boolean", "default": False}
