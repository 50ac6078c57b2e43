"""The log of one job, asked of a head over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from runwatch.address import http_address, read_address, token_for
from runwatch.compat.goodput.log.entries import (
    AsPoint,
    Columns,
    Entry,
    Marks,
    mark_of,
    time_ns_of,
    to_record,
)
from runwatch.errors import HeadUnreachable, RunwatchError, UsageError, WireError
from runwatch.record.life import GoodputEntry
from runwatch.sdk.identity import slug
from runwatch.settings import runwatch_dir, token_of

TIMEOUT_SECONDS: Final = 10.0
_CURSOR: Final = "head:"


class HeadLog:
    """What a head has stored, page by page, from where the last call left it.

    `runs` are ids or names that the job's run may have; the first that the head knows is the one.
    """

    def __init__(self, address: str, token: str, runs: list[str], logger: str) -> None:
        self.address = address
        self.marks = Marks()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._runs = runs
        self._logger = logger
        self._after = ""

    def close(self) -> None:
        """Nothing is kept open."""

    @property
    def cursor(self) -> str:
        return _CURSOR + self._after

    def resume(self, cursor: str) -> bool:
        """Go on behind `cursor`, or at the beginning; False if it is not one of ours."""
        if cursor and not cursor.startswith(_CURSOR):
            return False
        self._after = cursor.removeprefix(_CURSOR)
        return True

    def knows_the_run(self) -> bool:
        """Whether it answers, and for this run."""
        try:
            return self._page() is not None
        except RunwatchError:
            return False

    def read(self, until_ns: int | None = None) -> Iterator[Columns]:
        """New entries up to `until_ns`.  A head does not say when an entry was recorded: the time
        in the entry counts."""
        while (answer := self._page()) is not None:
            entries, following = _checked(answer, self.address)
            columns = self._columns(entries, until_ns)
            whole = len(columns) == len(entries)
            if whole:
                self._after, was = following, self._after
            if columns:
                yield columns
            if not whole or not entries or following == was:
                return  # what is later than `until_ns` is asked for again

    def _columns(self, entries: list[Entry], until_ns: int | None) -> Columns:
        columns, last_ns = Columns(self.marks), 0
        for entry in entries:
            last_ns = time_ns_of(entry, last_ns)
            if until_ns is not None and last_ns > until_ns:
                continue
            record = to_record(entry)
            mark = mark_of(record.metric, record.labels) if isinstance(record, AsPoint) else None
            if mark is None or isinstance(record, GoodputEntry):
                columns.others.append((len(columns.code), last_ns, entry))
            else:
                columns.add(self.marks.code(mark), record.step, record.value, last_ns)
        return columns

    def _page(self) -> Any:
        """None when the head knows no such run: to its caller that is an empty log."""
        asked = {"logger": self._logger} | ({"after": self._after} if self._after else {})
        return self.ask("goodput/entries", list(asked.items()))

    def ask(self, what: str, parameters: Sequence[tuple[str, str]]) -> Any:
        """The head's answer about the run; None when it knows no such run."""
        while self._runs:
            run = quote(self._runs[0], safe="")
            try:
                answer = self._get(f"/api/v1/runs/{run}/{what}?{urlencode(parameters)}")
            except FileNotFoundError:
                if len(self._runs) == 1:
                    return None  # it may come yet
                del self._runs[0]
            else:
                del self._runs[1:]
                return answer
        return None

    def _get(self, path: str) -> Any:
        import urllib.error
        import urllib.request  # the weight of an HTTP client, for those who ask a head

        request = urllib.request.Request(self.address + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.code, error.read()) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise HeadUnreachable(
                f"no answer from the head at {self.address}: {reason}. Does it run? "
                "(`runwatch head`; RUNWATCH_HEAD says where)"
            ) from error
        except ValueError as error:
            raise WireError(f"{self.address} is not a Runwatch head: {error}") from error


def _refused(status: int, body: bytes) -> RunwatchError | FileNotFoundError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the head answered {status}"
    if status == 404:
        return FileNotFoundError(message)
    return UsageError(f"{message} (set RUNWATCH_TOKEN)" if status == 401 else message)


def _checked(answer: Any, address: str) -> tuple[list[Entry], str]:
    try:
        entries, following = answer["entries"], answer["next"]
        if not all(isinstance(entry, dict) for entry in entries):
            raise TypeError("an entry is not an object")
    except (KeyError, TypeError) as error:
        raise WireError(f"{address} answered something else than log entries: {error}") from error
    return entries, str(following or "")


def run_names(job_name: str) -> list[str]:
    """Ids and names that the job's run may have, the likeliest first."""
    names = [os.environ.get("RUNWATCH_RUN_ID", ""), slug(job_name), job_name]
    return [name for name in dict.fromkeys(names) if name]


def named_head(environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """(address, token) of the head that the environment names."""
    named = environment.get("RUNWATCH_HEAD", "")
    if not named:
        return None
    address = http_address(named)
    return address, token_for(address, runwatch_dir(environment), token_of(environment))


def head_of(root: Path) -> tuple[str, str] | None:
    """(address, token) of the head that left its address in this directory; it may be gone."""
    address = read_address(root)
    return (str(address.http), token_for(address.http, root)) if address is not None else None
