"""What OpenTelemetry's own exporters were given, as the program itself saw it: the truth that a
test compares a store with.  Nothing of the program under test is changed."""

from __future__ import annotations

import atexit
import json
import sys
from pathlib import Path
from typing import Any

POINTS: list[list[Any]] = []
LINES: list[str] = []
SPANS: list[str] = []


def watch(exporters: dict[str, Any], file: str) -> None:
    """`exporters`: classes by signal.  The file is written when the program ends."""
    for signal, kind in exporters.items():
        _watch(signal, kind)
    # Last of all: providers send what they have in exit handlers of their own.
    atexit.register(lambda: Path(file).write_text(json.dumps([POINTS, LINES, SPANS])))


def _watch(signal: str, kind: Any) -> None:
    export = kind.export

    def exported(self: Any, given: Any, *more: Any, **named: Any) -> Any:
        taken = _READ[signal](given)
        result = export(self, given, *more, **named)
        if result.name == "SUCCESS":
            taken()
        else:
            print(f"{signal}: {result}", file=sys.stderr)
        return result

    kind.export = exported


def _metrics(data: Any) -> Any:
    found = []
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    whole = (value,) if value is not None else (point.count, point.sum)
                    found.append([metric.name, dict(point.attributes), point.time_unix_nano, whole])
    return lambda: POINTS.extend(found)


def _logs(records: Any) -> Any:
    found = [str(each.log_record.body) for each in records]
    return lambda: LINES.extend(found)


def _traces(spans: Any) -> Any:
    found = [each.name for each in spans]
    return lambda: SPANS.extend(found)


_READ = {"metrics": _metrics, "logs": _logs, "traces": _traces}
