"""Deleting runs under /api/v1: what a deletion would remove, delete, list deleted runs, restore."""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.http.access import CALLER
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import RUN, YES, BadRequest, Given, Parameter
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.http.types import Answer, plain
from runwatch.head.state.deletions import KEEP_DAYS, Deletions, Load, RunGoesOn
from runwatch.store.deletion import Deletion, State

MOST_DAYS: Final = 3650


class RunLoad(Answer):
    """What a run's deletion removes."""

    run: str
    name: str
    points: int
    spans: int
    events: int
    profiles: int
    bytes: int
    """An estimate: a file holds many runs."""


class DeletedRun(Answer):
    run: str
    name: str
    state: State
    """deleted: the run can be restored; restored: it is back; purged: its records are gone."""
    deleted_ns: int
    purge_ns: int
    """When its records are purged."""


class RunDeleted(RunLoad):
    deleted_ns: int
    purge_ns: int


class DeletedRuns(Answer):
    deleted: list[DeletedRun]
    """Newest first."""
    records_dropped: int
    """Records of deleted runs that came since the head's start; 0 for a token of projects."""


_FORCE: Final = Parameter(
    "force",
    "integer",
    "1: delete the run even while it is running",
    minimum=0,
    maximum=1,
    default=0,
)
_DAYS: Final = Parameter(
    "keep_days",
    "number",
    "days during which the run can be restored; 0: purge its records at once",
    minimum=0,
    maximum=MOST_DAYS,
    default=KEEP_DAYS,
)


class DeletionDesk:
    """The operations that delete and restore runs."""

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions

    def operations(self) -> list[Operation]:
        base = "/api/v1/runs/{run}"
        return [
            Operation(
                f"{base}/load",
                "What a run's deletion would remove",
                self._load,
                (RUN,),
                {JSON: RunLoad},
                (404, 409),
            ),
            Operation(
                base,
                "Delete a run",
                self._delete,
                (RUN, YES, _FORCE, _DAYS),
                {JSON: RunDeleted},
                (404, 409),
                "DELETE",
            ),
            Operation("/api/v1/deleted", "Deleted runs", self._list, (), {JSON: DeletedRuns}),
            Operation(
                "/api/v1/deleted/{run}/restore",
                "Restore a deleted run",
                self._restore,
                (RUN,),
                {JSON: DeletedRun},
                (404, 422),
                "POST",
            ),
        ]

    async def _load(self, request: Request, given: Given) -> Response:
        load = await run_in_threadpool(self._deletions.load, given["run"])
        return json_reply(RunLoad(**_load_fields(load)))

    async def _delete(self, request: Request, given: Given) -> Response:
        if not given["yes"]:
            raise BadRequest("yes=1 is missing: add it if you are sure; /load says what would go")

        def gone() -> RunDeleted:
            load = self._deletions.load(given["run"])
            deletion = self._deletions.delete(
                load.run, keep_days=given["keep_days"], force=bool(given["force"])
            )
            return RunDeleted(
                **_load_fields(load), deleted_ns=deletion.at_ns, purge_ns=deletion.purge_ns
            )

        try:
            return json_reply(await run_in_threadpool(gone))
        except RunGoesOn as error:
            return error_reply(409, "active", str(error))

    async def _list(self, request: Request, given: Given) -> Response:
        projects = request.scope[CALLER].sight.projects

        def listed() -> DeletedRuns:
            newest_first = sorted(self._deletions.all(projects), key=lambda each: -each.at_ns)
            return DeletedRuns(
                deleted=[_info(each) for each in newest_first],
                records_dropped=0 if projects else self._deletions.records_dropped(),
            )

        return json_reply(await run_in_threadpool(listed))

    async def _restore(self, request: Request, given: Given) -> Response:
        projects = request.scope[CALLER].sight.projects
        restored = await run_in_threadpool(self._deletions.restore, given["run"], projects)
        return json_reply(_info(restored))


def _load_fields(load: Load) -> dict[str, Any]:
    return {**load._asdict(), "run": plain(load.run), "name": plain(load.name)}


def _info(deletion: Deletion) -> DeletedRun:
    return DeletedRun(
        run=plain(deletion.run),
        name=plain(deletion.name),
        state=deletion.state,
        deleted_ns=deletion.at_ns,
        purge_ns=deletion.purge_ns,
    )
