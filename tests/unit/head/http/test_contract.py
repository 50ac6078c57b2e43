"""The HTTP API, version 1, only grows, and what it answers is what its document says.

`tests/fixtures/http` holds the document with all that it ever had, and an answer to every question.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract import recorded
from tests.contract.recorded import Kept

ANEW = "`make contract` records it"


# One head for all of them.
pytestmark = pytest.mark.xdist_group("contract")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return recorded.described()


@pytest.fixture(scope="module")
def now(document: dict[str, Any]) -> dict[str, Kept]:
    """What a small head answers today."""
    return recorded.answers_now(document)


@pytest.fixture(scope="module")
def kept() -> dict[str, Kept]:
    return recorded.kept_answers()


# ── the document ──────────────────────────────────────────────────────────────────────────────


def test_nothing_was_taken_away(document: dict[str, Any]) -> None:
    landed = recorded.landed()
    for path, operations in landed["paths"].items():
        assert path in document["paths"]
        for method, operation in operations.items():
            old = {p["name"] for p in operation.get("parameters", ())}
            current = document["paths"][path][method].get("parameters", ())
            assert old <= {p["name"] for p in current}, path
            added = {p["name"] for p in current if p.get("required")} - old
            assert not added, f"{path} now demands {added}"
    for name, schema in landed["components"]["schemas"].items():
        fields = document["components"]["schemas"][name].get("properties", {})
        assert set(schema.get("properties", {})) <= set(fields), name


def test_an_answer_always_has_what_it_always_had(document: dict[str, Any]) -> None:
    """And a request may leave out what it could always leave out."""
    before, today = (each["components"]["schemas"] for each in (recorded.landed(), document))
    sent = recorded.body_schemas(document)
    for name in before:
        old, new = (set(each[name].get("required", ())) for each in (before, today))
        missing = new - old if name in sent else old - new
        assert not missing, f"{name}: {missing}"


def test_the_fixture_has_every_path_and_schema(document: dict[str, Any]) -> None:
    landed = recorded.landed()
    grown = recorded.merged(landed, document)
    new = [
        f"{method.upper()} {path}"
        for path, methods in grown["paths"].items()
        for method, operation in methods.items()
        if landed["paths"].get(path, {}).get(method) != operation
    ]
    schemas = grown["components"]["schemas"]
    new += [n for n in schemas if landed["components"]["schemas"].get(n) != schemas[n]]
    assert not new, f"{recorded.DOCUMENT.name} does not have all of {', '.join(new)}; {ANEW}"


# ── recorded answers ──────────────────────────────────────────────────────────────────────────


def test_every_question_has_a_recorded_answer(
    document: dict[str, Any], kept: dict[str, Kept]
) -> None:
    answered = {(each["operation"], each["media"]) for each in kept.values()}
    missing = [" as ".join(each) for each in recorded.asked_for(document) if each not in answered]
    assert not missing, (
        f"no answer is recorded of {', '.join(missing)}; {ANEW}, and tests/contract/questions.py "
        "says when it needs a line there"
    )


def test_every_schema_is_in_a_recorded_answer(
    document: dict[str, Any], kept: dict[str, Kept]
) -> None:
    seen = set().union(*(recorded.told(each, document).schemas for each in kept.values()))
    unseen = set(document["components"]["schemas"]) - seen
    assert not unseen, (
        f"no recorded answer has a {', '.join(sorted(unseen))}: "
        f"let tests/contract/world.py have one, then {ANEW}"
    )


def test_recorded_answers_are_what_the_document_says(
    document: dict[str, Any], kept: dict[str, Kept]
) -> None:
    wrong = [fault for each in kept.values() for fault in recorded.faults(each, document)]
    assert not wrong, "\n".join([f"if the API tells more now, {ANEW} anew:", *wrong])


def test_answers_of_today_are_what_the_document_says(
    document: dict[str, Any], now: dict[str, Kept]
) -> None:
    wrong = [fault for each in now.values() for fault in recorded.faults(each, document)]
    assert not wrong, "\n".join(wrong)


def test_answers_of_today_tell_all_that_was_recorded(
    document: dict[str, Any], kept: dict[str, Kept], now: dict[str, Kept]
) -> None:
    for name, before in kept.items():
        assert name in now, f"nobody asks for {name}.json any more"
        today = now[name]
        assert (today["status"], today["media"]) == (before["status"], before["media"]), name
        gone = recorded.taken_away(before, today, document)
        assert not gone, f"{before['operation']} does not tell {gone} any more ({name}.json)"


def test_what_is_new_is_seen(document: dict[str, Any], kept: dict[str, Kept]) -> None:
    """The checks above find what they look for."""
    grown = recorded.merged(document, document)
    added = {"get": document["paths"]["/api/v1/health"]["get"]}
    grown["paths"]["/api/v1/new"] = added
    assert ("GET /api/v1/new", "application/json") in recorded.asked_for(grown)
    with pytest.raises(AssertionError, match="GET /api/v1/new as application/json.*`make contract"):
        test_every_question_has_a_recorded_answer(grown, kept)
    with pytest.raises(AssertionError, match="openapi-v1.json .*GET /api/v1/new.*`make contract"):
        test_the_fixture_has_every_path_and_schema(grown)
    grown["components"]["schemas"]["SeriesInfo"]["required"].append("colour")
    before = kept["runs_run_series"]
    assert "colour" in recorded.faults(before, grown)[0]
    lost = {**before, "answer": {**before["answer"], "total": "many"}}
    del lost["answer"]["next_offset"]
    gone = recorded.taken_away(before, lost, document)
    assert gone == {"0:.next_offset", "0:.total: number"}
