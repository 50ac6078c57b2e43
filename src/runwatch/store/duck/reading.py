"""The questions as SQL, over hot tables and closed files alike.

SQL selects rows and returns them as columns; `reduction.py` makes curves of them.  A question about
more rows than may be in memory is asked a page at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from runwatch.buckets import MINUTE_NS, Axis, Grid, grid
from runwatch.record import NO_STEP
from runwatch.rows import Curve
from runwatch.store.crowds import (
    Asked,
    Crowds,
    Fullest,
    amounts,
    fair_share,
    fullest,
    newest_of_each,
)
from runwatch.store.duck import pieces, reduction
from runwatch.store.duck.blocks import Block, BlockFiles, Kind
from runwatch.store.duck.hot import Connection
from runwatch.store.duck.latest import Floats
from runwatch.store.duck.matrix import ROLLED, Sheet
from runwatch.store.duck.named import COLUMNS, NAMED, Mention
from runwatch.store.duck.named import fullest as fullest_of
from runwatch.store.duck.pages import (
    Keys,
    Page,
    Part,
    RowGroups,
    View,
    between,
    cut,
    floored,
    scan,
)
from runwatch.store.duck.pieces import Row
from runwatch.store.duck.reduction import Cells, Columns
from runwatch.store.duck.sought import condition
from runwatch.store.entries import Integers
from runwatch.store.store import PointColumns, Sought, Statistic

_MANY_ROWS: Final = 2_000
_SOME_ROWS: Final = 64

_POINTS_PAGE_ROWS: Final = 250_000
"""Two row groups of a file: with smaller pages some row groups would be decoded twice."""

_ROLLUP_COLUMNS: Final = """series, first_ns, last_ns, first, last,
    coalesce(minimum, 'inf'::DOUBLE) AS minimum, coalesce(maximum, '-inf'::DOUBLE) AS maximum,
    coalesce(total, 0) AS total, finite, nonfinite"""

_BULK: Final = "strlen(body) // 1024 * 16"
"""How many rows of numbers, of about 60 bytes each, a large event body counts as."""

POINT_COLUMNS: Final = "series, time_ns, step, value"
SPAN_COLUMNS: Final = "run, journal, name, span, edge, time_ns, step, place"
EVENT_COLUMNS: Final = "run, journal, scope, time_ns, step, kind, body, place"


class Reader:
    """Asks one view through one connection, in one transaction."""

    def __init__(
        self,
        connection: Connection,
        view: View,
        files: BlockFiles | None,
        *,
        row_groups: RowGroups,
        crowds: Crowds,
        hot_points: int,
        page_rows: int,
    ) -> None:
        self._connection = connection
        self._view = view
        self._files = files
        self._row_groups = row_groups
        self._crowds = crowds
        self._taken = crowds.taken  # read before the view begins: the view has at least this
        self._hot_points = hot_points
        self._page_rows = page_rows
        connection.begin()

    def close(self) -> None:
        self._connection.close()

    def interrupt(self) -> None:
        """From another thread: the query that runs now ends with an error."""
        self._connection.interrupt()

    # ── curves ─────────────────────────────────────────────────────────────────────────────────

    def curves(
        self, keys: Keys, axis: Axis, start: int | None, end: int | None, buckets: int
    ) -> list[Curve]:
        ask = self._curves_by_time if axis == "time" else self._curves_by_step
        return ask(keys, start, end, buckets)

    def _curves_by_time(
        self, keys: Keys, start: int | None, end: int | None, buckets: int
    ) -> list[Curve]:
        if start is None or end is None:
            bounds = self._times(keys)
            if bounds is None:
                return []
            start = bounds[0] if start is None else start
            end = bounds[1] + 1 if end is None else end
        cells = grid("time", start, end, buckets)
        if cells is None:
            return []
        blocks = self._view.parts("rollup" if cells.by_minutes else "points")
        pages = self._pages(Page.of(keys, cells.start, cells.end, blocks), self._page_rows)
        parts = [part for page in pages for part in self._cells(page, keys.ids, cells)]
        return reduction.curves(parts, keys.ids, "time", cells)

    def _curves_by_step(
        self, keys: Keys, start: int | None, end: int | None, buckets: int
    ) -> list[Curve]:
        points = Page.of(keys, None, None, self._view.closed("points"))
        pages = self._pages(points, self._page_rows)
        first_page: list[Columns] = []
        if start is None or end is None:
            if len(pages) == 1:  # the bounds and the curve need the same rows
                first_page = [self._by_step(pages[0], start, end)]
                bounds = _lowest_and_highest(first_page[0]["place"])
            else:
                bounds = self._steps(points)
            if bounds is None:
                return []
            start = bounds[0] if start is None else start
            end = bounds[1] + 1 if end is None else end
        cells = grid("step", start, end, buckets)
        if cells is None:
            return []
        pages_read = first_page or (self._by_step(page, cells.start, cells.end) for page in pages)
        parts = [
            part for rows in pages_read for part in reduction.cells_of_points(rows, keys.ids, cells)
        ]
        return reduction.curves(parts, keys.ids, "step", cells)

    def _cells(self, page: Page, ids: Integers, grid: Grid) -> Iterator[Cells]:
        points = self._points(page, "time_ns, value", page.where)
        points["place"] = points["time_ns"]
        yield from reduction.cells_of_points(points, ids, grid)
        rollups = page.chosen("rollup")
        if rollups:
            rows = f"SELECT {_ROLLUP_COLUMNS} FROM {self._scan(rollups)} WHERE {page.where_rollup}"
            yield from reduction.cells_of_rollup(self._columns(rows), ids, grid)

    def matrix(
        self, keys: Keys, rows: Integers, height: int, cells: Grid, statistic: Statistic
    ) -> Floats:
        """The engine computes ranks and buckets: half the cost of fetching ids and times."""
        sheet = Sheet(rows, height, cells, statistic)
        blocks = self._view.parts("rollup" if cells.by_minutes else "points")
        for page in self._pages(Page.of(keys, cells.start, cells.end, blocks), self._page_rows):
            points = f"{_place('time_ns', keys, cells)}, value"
            query = self._source("points", points, page.where, page.chosen("points"))
            sheet.add_points(_ranked(self._columns(query), keys))
            rollups = page.chosen("rollup")
            if rollups:
                rolled = f"{_place('first_ns', keys, cells)}, {ROLLED[statistic]}"
                query = f"SELECT {rolled} FROM {self._scan(rollups)} WHERE {page.where_rollup}"
                sheet.add_rollup(_ranked(self._columns(query), keys))
        return sheet.values()

    def _by_step(self, page: Page, start: int | None, end: int | None) -> Columns:
        where = page.where + (between(start, end, "step") or " AND step IS NOT NULL")
        return self._points(page, "step AS place, time_ns, value", where)

    def _points(self, page: Page, columns: str, where: str) -> Columns:
        """The given columns, and `series`."""
        is_single = len(page.keys.ids) == 1
        selected = columns if is_single else f"series, {columns}"
        points = self._columns(self._source("points", selected, where, page.chosen("points")))
        if is_single:  # fetching a constant column would cost a third of a long curve
            points["series"] = np.broadcast_to(page.keys.ids, len(points["time_ns"]))
        return points

    def _times(self, keys: Keys) -> tuple[int, int] | None:
        page = Page.of(keys, None, None, self._view.parts("rollup"))
        points = self._source("points", "time_ns", page.where, page.chosen("points"))
        queries = [f"SELECT min(time_ns) AS low, max(time_ns) AS high FROM ({points})"]
        rollups = page.chosen("rollup")
        if rollups:
            queries.append(
                "SELECT min(first_ns) AS low, max(last_ns) AS high "
                f"FROM {self._scan(rollups)} WHERE {page.where}"
            )
        return self._pair(f"SELECT min(low), max(high) FROM ({' UNION ALL '.join(queries)})")

    def _steps(self, page: Page) -> tuple[int, int] | None:
        points = self._source("points", "step", page.where, page.blocks)
        return self._pair(f"SELECT min(step), max(step) FROM ({points})")

    # ── raw points ─────────────────────────────────────────────────────────────────────────────

    def points(
        self, keys: Keys, start_ns: int | None, end_ns: int | None, rows: int
    ) -> Iterator[PointColumns]:
        whole = Page.of(keys, start_ns, end_ns, self._view.closed("points"))
        columns = f"series, time_ns, coalesce(step, {NO_STEP}) AS step, value"
        held: list[PointColumns] = []
        for page in self._pages(whole, min(max(rows, _POINTS_PAGE_ROWS), self._page_rows)):
            query = self._source("points", columns, page.where, page.blocks)
            points = PointColumns.joined([*held, _in_order(PointColumns(**self._columns(query)))])
            whole_parts = len(points) // rows * rows
            yield from (points.taken(slice(at, at + rows)) for at in range(0, whole_parts, rows))
            held = [points.taken(slice(whole_parts, None))]
        if held and len(held[0]):
            yield held[0]

    # ── pages ──────────────────────────────────────────────────────────────────────────────────

    def _pages(self, page: Page, rows: int) -> list[Page]:
        """The page in pieces of at most about `rows` rows, in (series, time) order."""
        if self._at_most(page) <= rows:
            return [page]
        pages = []
        for (low, high), count in cut(self._counts(page, "series"), rows):
            part = page.of_series(low, high)
            if count <= rows:
                pages.append(part)
            else:
                minutes = cut(self._counts(part, floored("place", MINUTE_NS)), rows)
                pages += [part.of_minutes(first, last) for (first, last), _ in minutes]
        return pages

    def _at_most(self, page: Page) -> int:
        """An upper bound that is cheap to compute."""
        return self._hot_points + sum(
            self._row_groups.rows(self._connection, block, page.keys) for block in page.blocks
        )

    def _counts(self, page: Page, key: str) -> list[tuple[int, int]]:
        """Rows by series or by minute.  Roll-ups know how many points each minute has."""
        rollups = {block.part: block for block in self._view.closed("rollup")}
        points = page.chosen("points")
        counted = [rollups[block.part] for block in points if block.part in rollups]
        uncounted = [block for block in points if block.part not in rollups]
        queries = [
            self._source("points", "series, time_ns AS place, 1 AS n", page.where, uncounted)
        ]
        for blocks, n in ((counted, "finite + nonfinite"), (page.chosen("rollup"), "1")):
            if blocks:
                ended = between(page.start_ns, None, "last_ns")
                begun = between(None, page.end_ns, "first_ns")
                queries.append(
                    f"SELECT series, first_ns AS place, {n} AS n FROM {self._scan(blocks)} "
                    f"WHERE {page.keys.condition}{ended}{begun}"
                )
        return self._connection.execute(
            f"SELECT {key} AS key, sum(n)::BIGINT FROM ({' UNION ALL '.join(queries)}) "
            "GROUP BY key ORDER BY key"
        ).fetchall()

    # ── spans and events ───────────────────────────────────────────────────────────────────────

    def rows(
        self,
        kind: Kind,
        columns: str,
        *,
        run: int | None,
        kinds: Sequence[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        most_bytes: int | None = None,
        of_each: int | None = None,
        about: Sequence[str] | None = None,
        mentions: Sequence[Mention] | None = None,
        without: Sequence[int] = (),
        sought: Sought | None = None,
    ) -> list[Row]:
        """`most_bytes`: a limit for the bodies together, which cuts rows like `limit`.  `without`:
        leave out these runs.  `of_each`: only this many newest rows per journal and kind, and not
        more bytes than `crowds.py` allows.  `about`: only events whose body names one of these
        journals.  `mentions`: where those events are, if known; only these are looked at.
        `sought`: only events at whose time one may hold a text."""
        if mentions is not None and not mentions:
            return []
        blocks = [
            block
            for block in self._view.closed(kind)
            if block.overlaps(start_ns, end_ns)
            and (run is None or block.key_min <= run <= block.key_max)
            and (mentions is None or any(mention.may_be_in(block) for mention in mentions))
        ]
        where = "true" if run is None else f"run = {run}"
        if without:
            where += f" AND run NOT IN ({', '.join(map(str, without))})"
        where += between(start_ns, end_ns) + (" AND kind = ANY($kinds)" if kinds else "")
        way = "DESC" if newest_first else "ASC"
        parameters: dict[str, Any] = {"kinds": list(kinds)} if kinds else {}
        if about is not None:
            # The engine parses bodies a few thousand at a time; in Python each would cost 20 µs.
            where += f" AND {NAMED} IN (SELECT unnest($about))"
            parameters["about"] = list(about)
        if mentions is not None:
            times = sorted({mention.time_ns for mention in mentions})
            where += f" AND time_ns BETWEEN {times[0]} AND {times[-1]}"
            where += f" AND time_ns IN ({', '.join(map(str, times))})"
        if sought is not None:
            where += self._sought(sought, where, blocks, parameters, limit, way)

        def is_crowded(of_each: int) -> bool:
            if mentions is not None:
                return fullest_of(mentions).is_over(of_each)
            return self._is_crowded((run, tuple(kinds or ()), of_each))

        def query_for(most: int | None) -> str:
            bound = where
            if most is not None and most > _MANY_ROWS and of_each is None:
                bound += self._up_to(kind, where, blocks, parameters, most, way)
            query = self._source(kind, columns, bound, blocks)
            if of_each is not None and is_crowded(of_each):
                key = "journal, kind, time_ns, place, strlen(body) AS size"
                sizes = self._source(kind, key, where, blocks)
                keys = newest_of_each(sizes, of_each, self._share(sizes, parameters))
                keys = f"SEMI JOIN ({keys}) USING (journal, kind, place)"
                query = f"SELECT {columns} FROM ({query}) {keys}"
            query += f" ORDER BY time_ns {way}, journal {way}, place {way}"
            return query if most is None else f"{query} LIMIT {most}"

        if kind != "events":
            return self._connection.execute(query_for(limit), parameters).fetchall()
        most = limit
        while True:
            query = query_for(most)
            events, count = self._whole(query, parameters, columns.split(", "), most_bytes)
            if most is None or limit is None or count < most or len(events) >= limit:
                return events[:limit]
            most = max(4 * most, pieces.MOST)  # some events have several rows

    def _whole(
        self, query: str, parameters: Any, names: Sequence[str], most_bytes: int | None
    ) -> tuple[list[Row], int]:
        """At least one event, with about `most_bytes` of bodies, and how many rows were read."""
        result, count = self._connection.execute(query, parameters), 0

        def rows() -> Iterator[Row]:
            nonlocal count
            while some := result.fetchmany(_SOME_ROWS):
                for row in some:
                    count += 1
                    yield row

        if most_bytes is None:
            every = result.fetchall()
            return list(pieces.whole(every, names)), len(every)
        body, events = names.index("body"), list[Row]()
        for event in pieces.whole(rows(), names):
            most_bytes -= len(event[body])
            if most_bytes <= 0 and events:
                break
            events.append(event)
            if most_bytes <= 0:
                break
        return events, count

    def _up_to(
        self, kind: Kind, where: str, blocks: Sequence[Block], parameters: Any, limit: int, way: str
    ) -> str:
        """A condition on time that holds for the first `limit` rows.  Sorting all rows, bodies
        included, would take hundreds of megabytes."""
        times = self._source(kind, "time_ns", where, blocks)
        last, compares = ("max", "<=") if way == "ASC" else ("min", ">=")
        query = f"SELECT {last}(time_ns) FROM ({times} ORDER BY time_ns {way} LIMIT {limit})"
        last_time = self._connection.execute(query, parameters).fetchone()
        return (
            ""
            if last_time is None or last_time[0] is None
            else f" AND time_ns {compares} {last_time[0]}"
        )

    def _sought(
        self,
        sought: Sought,
        where: str,
        blocks: Sequence[Block],
        parameters: dict[str, Any],
        limit: int | None,
        way: str,
    ) -> str:
        """A condition on time that holds for all events at whose time one may hold the text, and
        for those of the first and of the last time that was looked at."""
        first, last, beyond = ("min", "max", ">") if way == "ASC" else ("max", "min", "<")

        def edge(which: str, rows: str) -> int | None:
            ((time_ns,),) = self._connection.execute(
                f"SELECT {which}(time_ns) FROM ({rows})", parameters
            ).fetchall()
            return None if time_ns is None else int(time_ns)

        begins = edge(first, self._source("events", "time_ns", where, blocks))
        if begins is None:
            return ""
        where += f" AND time_ns {beyond} {begins}"
        next_ones = self._source("events", "time_ns", where, blocks)
        ends = edge(last, f"{next_ones} ORDER BY time_ns {way} LIMIT {sought.most}")
        if ends is None:
            return f" AND time_ns = {begins}"
        low, high = sorted((begins, ends))
        where += f" AND time_ns BETWEEN {low} AND {high}"
        held = dict(parameters)
        query = self._source("events", "time_ns", f"{where} AND {condition(sought, held)}", blocks)
        query = f"SELECT DISTINCT time_ns FROM ({query}) ORDER BY time_ns {way}"
        enough = None if limit is None else max(limit, 1)
        query += "" if enough is None else f" LIMIT {enough}"
        times = [time_ns for (time_ns,) in self._connection.execute(query, held).fetchall()]
        if len(times) != enough:  # else the answer ends before
            times.append(ends)
        low, high = sorted((begins, times[-1]))
        within = f" AND time_ns BETWEEN {low} AND {high}"
        return f"{within} AND time_ns IN ({', '.join(map(str, [begins, *times]))})"

    def named(self, kinds: Sequence[str]) -> list[Row]:
        """Every event of these kinds that names a journal, with the columns of `named.py`."""
        query = self._source("events", COLUMNS, "kind = ANY($kinds)", self._view.closed("events"))
        return self._connection.execute(query, {"kinds": list(kinds)}).fetchall()

    def _is_crowded(self, asked: Asked) -> bool:
        """Whether a journal has too many events of a kind, at any time."""
        crowded = self._crowds.is_crowded(asked, self._taken)
        if crowded is not None:
            return crowded
        run, kinds, _ = asked
        where = "kind = ANY($kinds)" if kinds else "true"
        where += "" if run is None else f" AND run = {run}"
        part = Part("events", where, run)
        rows = self._union([part], "journal, kind, strlen(body) AS size", None, None)
        parameters = {"kinds": list(kinds)} if kinds else None
        (counts,) = self._connection.execute(fullest(rows), parameters).fetchall()
        return self._crowds.counted(asked, self._taken, Fullest(*counts))

    def _share(self, sizes: str, parameters: Any) -> int:
        rows = self._connection.execute(amounts(sizes), parameters).fetchall()
        return fair_share(bytes for _, bytes in rows)

    # ── replay ─────────────────────────────────────────────────────────────────────────────────

    def extent(self, parts: Sequence[Part]) -> tuple[int, int, int]:
        """The number of rows, and their first and last time.  From here on the view is fixed."""
        query = self._union(parts, "time_ns", None, None)
        ((count, low, high),) = self._connection.execute(
            f"SELECT count(*), coalesce(min(time_ns), 0), coalesce(max(time_ns), 0) FROM ({query})"
        ).fetchall()
        return int(count), int(low), int(high)

    def counts(
        self, parts: Sequence[Part], start_ns: int, end_ns: int, key: str
    ) -> list[tuple[int, int]]:
        """Rows by the key's value; an event with a large body counts as several."""
        queries = [
            self._union([part], f"{key} AS key, {_rows_of(part)} AS rows", start_ns, end_ns)
            for part in parts
        ]
        return self._connection.execute(
            f"SELECT key, sum(rows)::BIGINT FROM ({' UNION ALL '.join(queries)}) "
            "GROUP BY key ORDER BY key"
        ).fetchall()

    def bulk(self, part: Part) -> int:
        """How many additional rows the part's events count as, for their large bodies."""
        query = self._union([part], f"{_BULK} AS rows", None, None)
        return self._number(f"SELECT coalesce(sum(rows), 0)::BIGINT FROM ({query})")

    def tally(
        self, part: Part, column: str, until: Mapping[int, int] | None
    ) -> list[tuple[int, int, int, int]]:
        """For each number in the column: rows, their newest time, and the sum of their times."""
        rows = f"({self._union([part], f'{column} AS key, time_ns', None, None)})"
        if until:
            keys, times = list(until), list(until.values())
            rows += f" JOIN (SELECT unnest({keys}) AS key, unnest({times}) AS until) USING (key)"
            rows += " WHERE time_ns <= until"
        return self._connection.execute(
            f"SELECT key, count(*), max(time_ns), sum(time_ns) FROM {rows} GROUP BY key"
        ).fetchall()

    def stretch(self, part: Part, columns: str, start_ns: int, end_ns: int) -> Columns:
        return self._columns(self._union([part], columns, start_ns, end_ns))

    def _union(
        self, parts: Sequence[Part], columns: str, start_ns: int | None, end_ns: int | None
    ) -> str:
        within = between(start_ns, end_ns)
        queries = [
            self._source(
                part.kind, columns, part.where + within, self._blocks(part, start_ns, end_ns)
            )
            for part in parts
        ]
        return " UNION ALL ".join(queries) or "SELECT 0 AS time_ns WHERE false"

    def _blocks(self, part: Part, start_ns: int | None, end_ns: int | None) -> list[Block]:
        return [
            block
            for block in self._view.closed(part.kind)
            if block.overlaps(start_ns, end_ns) and part.touches(block)
        ]

    # ── both ───────────────────────────────────────────────────────────────────────────────────

    def _source(self, kind: Kind, columns: str, where: str, blocks: Sequence[Block]) -> str:
        scans = self._view.hot(kind)
        if blocks:
            scans.append(self._scan(blocks))
        return " UNION ALL ".join(f"SELECT {columns} FROM {scan} WHERE {where}" for scan in scans)

    def _scan(self, blocks: Iterable[Block]) -> str:
        assert self._files is not None
        return scan(self._files, (block.file for block in blocks))

    def _columns(self, query: str) -> Columns:
        # Not `execute`: it streams through a small buffer, and costs twice as much.
        columns = self._connection.sql(query).fetchnumpy()
        return {name: np.asarray(column) for name, column in columns.items()}

    def _number(self, query: str) -> int:
        ((number,),) = self._connection.execute(query).fetchall()
        return int(number)

    def _pair(self, query: str) -> tuple[int, int] | None:
        ((low, high),) = self._connection.execute(query).fetchall()
        return None if low is None else (int(low), int(high))


def _rows_of(part: Part) -> str:
    return f"1 + {_BULK}" if part.kind == "events" else "1"


def _place(time: str, keys: Keys, cells: Grid) -> str:
    """`rank` is the series' rank among the keys if these have no gaps; see `_ranked`."""
    series = f"(series - {keys.ids[0]})::INTEGER" if keys.is_contiguous else "series"
    return f"{series} AS rank, (({time} - {cells.start}) // {cells.width})::INTEGER AS bucket"


def _ranked(columns: Columns, keys: Keys) -> Columns:
    if not keys.is_contiguous:
        columns["rank"] = np.searchsorted(keys.ids, columns["rank"])
    return columns


def _lowest_and_highest(column: Integers) -> tuple[int, int] | None:
    return (int(column.min()), int(column.max())) if len(column) else None


def _in_order(points: PointColumns) -> PointColumns:
    series, time_ns = np.diff(points.series), np.diff(points.time_ns)
    if ((series > 0) | ((series == 0) & (time_ns >= 0))).all():
        return points
    return points.taken(np.lexsort((points.time_ns, points.series)))
