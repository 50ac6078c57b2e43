"""Writes the page's types, from the OpenAPI document of the head: `make types`.

    python scripts/page_types.py

The results are `web/src/lib/types.generated.ts`, and `tables.generated.ts` with the words and
colours of the classes of an account, the spans that are counted in them, what device metrics mean,
and the limits of a capture.  Both are checked in; a test makes them again and compares.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from runwatch.head.feature_table import api_document
from runwatch.record import capture_limits
from runwatch.views.device_metrics import DEVICE_METRICS
from runwatch.views.goodput.classes import SPAN_CLASSES, Spent
from runwatch.views.goodput.looks import LOOKS

WEB = Path(__file__).resolve().parents[1] / "web"
GENERATED = WEB / "src" / "lib" / "types.generated.ts"
TABLES = WEB / "src" / "lib" / "tables.generated.ts"
_HEADING = "// `make types` writes this file.  `types.ts` has the names that the page uses.\n\n"


def null_last(schema: Any) -> Any:
    """What may be null says so at its end: versions of msgspec differ in that."""
    if isinstance(schema, list):
        return [null_last(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    ordered = {name: null_last(value) for name, value in schema.items()}
    if "anyOf" in ordered:
        ordered["anyOf"] = sorted(ordered["anyOf"], key=lambda each: each.get("type") == "null")
    return ordered


def page_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_build", WEB / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generated() -> str:
    with tempfile.TemporaryDirectory(prefix="runwatch-types-") as folder:
        document = Path(folder, "openapi.json")
        document.write_text(json.dumps(null_last(api_document())))
        text: str = page_build().types_of(document)
    return _HEADING + text


def tables() -> str:
    classes = {
        look.name: {
            "words": look.words,
            "meaning": look.meaning,
            "light": look.light,
            "dark": look.dark,
        }
        for look in LOOKS
    }
    shape = "{ words: string; meaning: string; light: string; dark: string }"
    spans = {name: Spent(spent).name.lower() for name, spent in SPAN_CLASSES.items()}
    meanings = {metric.name: metric.meaning for metric in DEVICE_METRICS}
    limits = {
        "defaultMs": capture_limits.DEFAULT_MS,
        "maxMs": capture_limits.MAX_MS,
        "maxSteps": capture_limits.MAX_STEPS,
    }
    return (
        "// `make types` writes this file.\n\n"
        + _constant("CLASSES", shape, classes)
        + "\n/** The class that a span of this name is counted in. */\n"
        + _constant("SPAN_CLASSES", "string", spans)
        + "\n"
        + _constant("DEVICE_METRICS", "string", meanings)
        + f"\nexport const CAPTURE_LIMITS = {json.dumps(limits, indent=2)} as const;\n"
    )


def _constant(name: str, shape: str, table: object) -> str:
    text = json.dumps(table, indent=2, ensure_ascii=False)
    return f"export const {name}: Readonly<Record<string, {shape}>> = {text};\n"


def main() -> int:
    page_build().install_tools()
    for path, text in ((GENERATED, generated()), (TABLES, tables())):
        path.write_text(text)
        print(f"Wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
