"""What was recorded: the API's document as it grew, and an answer to every question.

An answer may be recorded anew when it tells more, and never when it tells less.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema_rs

from runwatch.head.feature_table import api_document
from tests.contract.questions import Answered, Asker, Document
from tests.contract.world import TOKEN, world

FOLDER: Final = Path(__file__).parents[1] / "fixtures" / "http"
DOCUMENT: Final = FOLDER / "openapi-v1.json"
ANSWERS: Final = FOLDER / "answers"
_SCHEMAS: Final = "#/components/schemas/"
_RESPONSES: Final = "#/components/responses/"
_SECRETS: Final = ("token",)

Kept = Mapping[str, Any]
"""A recorded answer, as its file has it."""


def described() -> dict[str, Any]:
    """The OpenAPI document of today, as it is answered with."""
    document: dict[str, Any] = json.loads(json.dumps(api_document()))
    return document


def landed() -> dict[str, Any]:
    """All that the document ever had."""
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return document


def kept_answers() -> dict[str, Kept]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(ANSWERS.glob("*.json"))}


def answers_now(document: Document) -> dict[str, Kept]:
    with tempfile.TemporaryDirectory(prefix="runwatch-contract-") as folder:
        root = Path(folder, "head")
        with world(root) as head:
            told = list(Asker(head, document).answers())
        return {each.name: _as_kept(each, str(root)) for each in told}


def _as_kept(answered: Answered, root: str) -> Kept:
    """Without secrets, and without the place where this head happened to be."""
    question = answered.question
    kept = {
        "operation": answered.operation,
        "asked": answered.asked,
        **({} if question.body is None else {"body": question.body}),
        "status": answered.status,
        "media": answered.media,
        "answer": answered.answer,
    }
    text = json.dumps(kept).replace(root, "/runwatch").replace(TOKEN, "TOKEN")
    text = re.sub(r'[^"]*/runwatch-summary-[^/"]+', "/scratch", text)
    if isinstance(answered.answer, dict):
        for name in _SECRETS:
            if word := answered.answer.get(name):
                text = text.replace(word, "TOKEN")
    found: Kept = json.loads(text)
    return found


# ── what it says, by the document ─────────────────────────────────────────────────────────────


class Part(NamedTuple):
    """What is said in one place of an answer, and the schema that it has there."""

    said: Any
    schema: Mapping[str, Any]


def parts(kept: Kept, document: Document) -> Iterator[Part]:
    method, path = kept["operation"].split()
    operation = document["paths"][path][method.lower()]
    if "body" in kept:
        yield Part(kept["body"], operation["requestBody"]["content"]["application/json"]["schema"])
    response = operation["responses"][str(kept["status"])]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].removeprefix(_RESPONSES)]
    content = response["content"][kept["media"]]
    if "x-events" in content:
        for each in kept["answer"]:
            yield Part(each["data"], content["x-events"][each["event"]])
    elif kept["media"] == "application/json":
        yield Part(kept["answer"], content["schema"])


def faults(kept: Kept, document: Document) -> list[str]:
    """Where it is not what the document says."""
    errors = [
        error
        for part in parts(kept, document)
        for error in _validator(part.schema, document).iter_errors(part.said)
    ]
    return [
        f"{kept['operation']}, /{'/'.join(map(str, each.instance_path))}: {each.message[:300]}"
        for each in errors
    ]


class Told(NamedTuple):
    schemas: set[str]
    """Those that some part of it has."""
    fields: set[str]
    """Where each field is, and what: `runs[].headline.metric` is a `runs[].headline.metric: str`,
    but for null, which a field may be at times."""


def told(kept: Kept, document: Document) -> Told:
    found = Told(set(), set())
    for number, part in enumerate(parts(kept, document)):
        _walk(part.said, part.schema, document, f"{number}:", found)
    return found


def _walk(said: Any, schema: Mapping[str, Any], document: Document, at: str, found: Told) -> None:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMAS)
        found.schemas.add(name)
        _walk(said, document["components"]["schemas"][name], document, at, found)
        return
    if "anyOf" in schema:
        _walk(said, _branch(said, schema["anyOf"], document), document, at, found)
        return
    if isinstance(said, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, value in said.items():
            place = f"{at}.{name}" if known else f"{at}{{}}"
            if known:
                told_kind = () if value is None else (f"{place}: {_kind(value)}",)
                found.fields.update((place, *told_kind))
            _walk(value, known.get(name, {}) if known else others, document, place, found)
    elif isinstance(said, list):
        for number, value in enumerate(said):
            _walk(value, _item(schema, number), document, f"{at}[]", found)


def _kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def _branch(said: Any, branches: Sequence[Mapping[str, Any]], document: Document) -> Any:
    """That which it is; most have one, and null."""
    left = [branch for branch in branches if said is None or branch.get("type") != "null"]
    fits = (branch for branch in left if _validator(branch, document).is_valid(said))
    return left[0] if len(left) == 1 else next(fits, {})


def _item(schema: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    first: Sequence[Mapping[str, Any]] = schema.get("prefixItems", ())
    return first[number] if number < len(first) else schema.get("items") or {}


def _validator(schema: Mapping[str, Any], document: Document) -> Any:
    return jsonschema_rs.validator_for({**schema, "components": document["components"]})


def asked_for(document: Document) -> Iterator[tuple[str, str]]:
    """Each operation, with each media type in which it is answered."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    for media in response["content"]:
                        yield f"{method.upper()} {path}", media


# ── recording ─────────────────────────────────────────────────────────────────────────────────


def taken_away(before: Kept, now: Kept, document: Document) -> set[str]:
    """Fields that an answer had and has no more."""
    return told(before, document).fields - told(now, document).fields


def record(say: Callable[[str], object] = print) -> bool:
    """Keep what is new; False if something that was there is gone."""
    document, before = described(), kept_answers()
    grown = merged(landed(), document)
    _write(DOCUMENT, grown, say)
    ANSWERS.mkdir(exist_ok=True)
    whole = True
    for name, now in answers_now(document).items():
        if bad := faults(now, document):
            say("\n".join(["Not as the document says, and not recorded:", *bad]))
            whole = False
        elif (kept := before.get(name)) is None:
            _write(ANSWERS / f"{name}.json", now, say)
        elif gone := taken_away(kept, now, document):
            say(f"Not recorded: {now['operation']} lost {', '.join(sorted(gone))} ({name}.json)")
            whole = False
        elif taken_away(now, kept, document) or faults(kept, document):
            _write(ANSWERS / f"{name}.json", now, say)
    return whole


def merged(before: Document, now: Document) -> dict[str, Any]:
    """The document with all that it ever had, as it had it, and with what has come since."""
    grown: dict[str, Any] = json.loads(json.dumps(before))
    for path, methods in now["paths"].items():
        for method, operation in methods.items():
            old = grown["paths"].setdefault(path, {}).setdefault(method, operation)
            known = {each["name"] for each in old["parameters"]}
            old["parameters"] += [p for p in operation["parameters"] if p["name"] not in known]
    bodies = body_schemas(now)
    for name, schema in now["components"]["schemas"].items():
        old = grown["components"]["schemas"].setdefault(name, schema)
        old["properties"] = schema.get("properties", {}) | old.get("properties", {})
        if name not in bodies:
            always = {*old.get("required", ()), *schema.get("required", ())}
            old["required"] = [field for field in schema["properties"] if field in always]
    grown["components"]["responses"] = now["components"]["responses"]
    return grown


def body_schemas(document: Document) -> set[str]:
    """Those of what is sent, not of what is answered."""
    return {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }


def _write(path: Path, body: Any, say: Callable[[str], object]) -> None:
    text = json.dumps(body, indent=1, sort_keys=path == DOCUMENT) + "\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        say(f"Wrote {path}")
