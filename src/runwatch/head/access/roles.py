"""Who may do what: the one table of the role that each route and each gRPC method needs.

*ingest* is for jobs: it sends records and does nothing else.  *view* reads.  *operate* also takes
captures and stacks, and starts and stops sessions.  *admin* may do everything: delete, make and
take back links and tokens, end the head.  A head with a route outside the table does not start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from starlette.routing import BaseRoute, Route, compile_path

Role: TypeAlias = Literal["ingest", "view", "operate", "admin"]
Need: TypeAlias = Role | Literal["anyone"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_HAS: Final[Mapping[Role, frozenset[Need]]] = {
    "ingest": frozenset({"ingest"}),
    "view": frozenset({"view"}),
    "operate": frozenset({"view", "operate"}),
    "admin": frozenset(ROLES),
}

_RUN: Final = "/api/v1/runs/{run}"
_ML_RUNS: Final = "/v1/machineLearningRuns"
ROUTES: Final[Mapping[str, Need]] = {
    "GET /api/v1/health": "anyone",
    "GET /api/v1/where": "anyone",
    "GET /api/v1/access": "view",
    "GET /api/v1/openapi.json": "view",
    "GET /metrics": "view",
    # ── runs ──
    "GET /api/v1/runs": "view",
    f"GET {_RUN}": "view",
    f"GET {_RUN}/configs": "view",
    f"GET {_RUN}/series": "view",
    f"GET {_RUN}/curves": "view",
    f"GET {_RUN}/latest": "view",
    f"GET {_RUN}/events": "view",
    f"GET {_RUN}/logs": "view",
    f"GET {_RUN}/processes": "view",
    f"GET {_RUN}/export": "view",
    f"GET {_RUN}/metrics": "view",
    f"GET {_RUN}/bands": "view",
    f"GET {_RUN}/spans": "view",
    f"GET {_RUN}/timeline": "view",
    f"GET {_RUN}/heatmap": "view",
    f"GET {_RUN}/heatmap/metrics": "view",
    f"GET {_RUN}/load": "admin",
    f"DELETE {_RUN}": "admin",
    "GET /api/v1/deleted": "admin",
    "POST /api/v1/deleted/{run}/restore": "admin",
    f"GET {_RUN}/goodput": "view",
    f"GET {_RUN}/goodput/explain": "view",
    f"GET {_RUN}/goodput/entries": "view",
    "GET /api/v1/goodput": "view",
    "GET /api/v1/goodput/classes": "view",
    "GET /api/v1/devices": "view",
    "GET /api/v1/devices/metrics": "view",
    "GET /api/v1/live": "view",
    # ── sessions ──
    "GET /api/v1/sessions": "view",
    "POST /api/v1/sessions": "operate",
    "GET /api/v1/sessions/{session}": "view",
    "GET /api/v1/sessions/{session}/export": "view",
    "POST /api/v1/sessions/{session}/stop": "operate",
    "POST /api/v1/sessions/{session}/resume": "operate",
    # ── profiles and captures ──
    "GET /api/v1/profiles": "view",
    f"GET {_RUN}/profiles": "view",
    "GET /api/v1/profiles/{run}/{session}": "view",
    "GET /api/v1/profiles/{run}/{session}/files/{name}": "view",
    "DELETE /api/v1/profiles/{run}/{session}": "admin",
    f"POST {_RUN}/captures": "operate",
    f"POST {_RUN}/captures/preflight": "operate",
    f"GET {_RUN}/captures/{{session}}": "view",
    "POST /api/v1/captures": "operate",
    "POST /api/v1/captures/preflight": "operate",
    "GET /api/v1/captures/{session}": "view",
    # ── stacks ──
    f"GET {_RUN}/incidents": "view",
    f"GET {_RUN}/incidents/{{incident}}": "view",
    f"GET {_RUN}/stacks": "view",
    f"POST {_RUN}/stacks": "operate",
    f"GET {_RUN}/flame": "view",
    "GET /api/v1/commands/{command}": "view",
    # ── who may come ──
    "GET /api/v1/shares": "admin",
    "POST /api/v1/shares": "admin",
    "DELETE /api/v1/shares/{id}": "admin",
    "GET /api/v1/tokens": "admin",
    "POST /api/v1/tokens": "admin",
    "POST /api/v1/tokens/renew": "admin",
    "DELETE /api/v1/tokens/{id}": "admin",
    "GET /api/v1/audit": "admin",
    # ── the page and the viewers ──
    "GET /": "view",
    "GET /assets/{name}": "view",
    "GET /icon.svg": "view",
    "GET /theme.js": "view",
    "GET /viewers": "view",
    "GET /viewers/": "view",
    "GET /viewers/trace": "view",
    "GET /viewers/xprof": "view",
    "GET /viewers/xprof/{path:path}": "view",
    "GET /viewers/perfetto": "view",
    "GET /viewers/perfetto/{path:path}": "view",
    "GET /viewers/speedscope": "view",
    "GET /viewers/speedscope/": "view",
    "GET /viewers/speedscope/{name}": "view",
    # ── programs made for gswarm-profiler ──
    "GET /status": "view",
    "GET /clients": "view",
    "GET /profiling/sessions": "view",
    "GET /metrics/latest": "view",
    "POST /profiling/start": "operate",
    "POST /profiling/stop": "operate",
    # ── programs that send OTLP, and google-cloud-mldiagnostics ──
    "POST /v1/metrics": "ingest",
    "POST /v1/logs": "ingest",
    "POST /v1/traces": "ingest",
    "GET /v1/agent-info": "ingest",
    f"PATCH {_ML_RUNS}": "ingest",
    f"PATCH {_ML_RUNS}/{{run}}": "ingest",
    f"GET {_ML_RUNS}": "view",
    f"GET {_ML_RUNS}/{{run}}": "view",
    f"POST {_ML_RUNS}/{{run}}/profilerSessions": "ingest",
    f"PATCH {_ML_RUNS}/{{run}}/profilerSessions/{{session}}": "ingest",
    f"GET {_ML_RUNS}/{{run}}/profilerSessions": "view",
    f"GET {_ML_RUNS}/{{run}}/profilerSessions/{{session}}": "view",
}

GSWARM: Final = "/gswarm_profiler.ProfilerService/"
OTLP: Final = "/opentelemetry.proto.collector."
METHODS: Final[Mapping[str, Role]] = {
    "/runwatch.v1.Spine/Stream": "ingest",
    "/runwatch.v1.Spine/Keep": "ingest",
    "/runwatch.v1.Sessions/List": "view",
    "/runwatch.v1.Sessions/One": "view",
    "/runwatch.v1.Sessions/Resume": "operate",
    "/runwatch.v1.Sessions/Export": "view",
    f"{GSWARM}Connect": "ingest",
    f"{GSWARM}StreamMetrics": "ingest",
    f"{GSWARM}GetStatus": "view",
    f"{GSWARM}ReadClusterStatus": "view",
    f"{GSWARM}ReadNodeStatus": "view",
    f"{GSWARM}StartProfiling": "operate",
    f"{GSWARM}StopProfiling": "operate",
    f"{GSWARM}SetBandwidthProfiling": "operate",
    f"{GSWARM}SetNVLinkProfiling": "operate",
    f"{GSWARM}Exit": "admin",
    f"{OTLP}metrics.v1.MetricsService/Export": "ingest",
    f"{OTLP}logs.v1.LogsService/Export": "ingest",
    f"{OTLP}trace.v1.TraceService/Export": "ingest",
}

BY_PROJECT: Final = frozenset(
    ("/runwatch.v1.Spine/Stream", "/runwatch.v1.Spine/Keep")
    + tuple(name for name in METHODS if name.startswith(OTLP))
)
"""The methods that check a token's projects; a token of projects may call no others."""
OPEN: Final = frozenset({"POST /profiling/start", "POST /profiling/stop"})
"""What callers without a token may do at a head that `gsprof start` began on loopback."""
GSWARM_ROUTES: Final = OPEN | {
    "GET /",
    "GET /status",
    "GET /clients",
    "GET /profiling/sessions",
    "GET /metrics/latest",
}
"""What callers without a token may ask at an address that is open to gswarm's programs."""


def takes_data(name: str | None) -> bool:
    """Whether a route takes what programs send: it looks at a token's projects itself."""
    return name is not None and " /v1/" in name and ROUTES[name] == "ingest"


def allows(role: Role | None, need: Need) -> bool:
    return need == "anyone" or (role is not None and need in _HAS[role])


def checked(word: str) -> Role | None:
    return next((role for role in ROLES if role == word), None)


def route(method: str, path: str) -> str | None:
    """The table's name for a request; None: there is no such route, and the router says so."""
    wanted = "GET" if method == "HEAD" else method
    for known, pattern, name in _patterns():
        if known == wanted and pattern.match(path):
            return name
    return None


def changes(name: str) -> bool:
    """Whether a request to this route goes to the audit log."""
    return not name.startswith("GET ") and not name.endswith("/preflight") and not takes_data(name)


def of_method(method: str) -> Role:
    """The role that a gRPC method needs; a method outside the table needs admin."""
    return METHODS.get(method, "admin")


def unknown(routes: Iterable[BaseRoute]) -> list[str]:
    """The routes that are not in the table."""
    names = [
        f"{method} {each.path}"
        for each in routes
        if isinstance(each, Route)
        for method in sorted(each.methods or ())
        if method != "HEAD"
    ]
    others = [repr(each) for each in routes if not isinstance(each, Route)]
    return [name for name in names if name not in ROUTES] + others


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    parts = ((name, *name.partition(" ")[::2]) for name in ROUTES)
    return tuple((method, compile_path(path)[0], name) for name, method, path in parts)
