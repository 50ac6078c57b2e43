"""A run as wandb's users know it: rows that count up, a summary, and what people log besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from runwatch.journal.writer import JournalWriter
from runwatch.record import NO_STEP
from runwatch.record.life import RunEnd
from runwatch.sdk import front
from runwatch.sdk.guard import Edge, attempt, guarded, text_of
from runwatch.sdk.run import Run
from runwatch.sdk.step import Step
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.pending import Logged
from runwatch.sdk.values.plain import config_values, mapping, text
from runwatch.sdk.values.rows import Rows
from runwatch.sdk.wandb_like import media

_PLAIN: Final = (float, int, bool, str)
_WITHOUT_MEANING: Final[Mapping[str, Any]] = {
    "url": "", "project_url": "", "sweep_url": None, "get_url": str, "get_project_url": str,
    "starting_step": 0, "start_time": 0.0,
}  # fmt: skip
"""What programs print of wandb's runs."""
_DEEP: Final = 8
MAX_LIST: Final = 32
"""A longer list of numbers becomes a histogram, as with wandb."""


class Summary(ConfigDict):
    """One value per name.  What the program sets is recorded; the rest follows what it logs."""

    __slots__ = ("_set",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "_set", set())
        super().__init__(*args, **kwargs)

    def __setitem__(self, key: str, value: Any) -> None:
        self._set.add(key)
        super().__setitem__(key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        given = config_values(args[0]) if args else {}
        self._set.update(given, kwargs)
        super().update(given, **kwargs)

    def follow(self, values: Mapping[str, Any]) -> None:
        """The program has logged these."""
        dict.update(self, values)

    def of_the_program(self) -> dict[str, Any]:
        return {name: value for name, value in self.items() if name in self._set}


class Row(int):
    """`run.step`: a number for programs that know us as wandb, and our own call all the same."""

    _begin: Callable[[int], Step]

    def __new__(cls, row: int, begin: Callable[[int], Step]) -> Self:
        number = super().__new__(cls, row)
        number._begin = begin
        return number

    def __call__(self, number: int) -> Step:
        return self._begin(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class Metric:
    """What `define_metric` returns."""

    def __init__(self, name: str, step_metric: str | None, summary: str | None) -> None:
        self.name, self.step_metric, self.summary = name, step_metric, summary
        self.kinds = tuple(k for k in (summary or "").split(",") if k in _KINDS)

    def of(self, before: Any, value: float) -> dict[str, float]:
        """This metric's summary, with one more value."""
        known = before if isinstance(before, dict) else {}
        return {kind: _KINDS[kind](known.get(kind, value), value) for kind in self.kinds}


_KINDS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "min": min,
    "max": max,
    "last": lambda before, value: value,
    "first": lambda before, value: before,
}


class LikeWandb(Run):
    """`log` without a step goes to the next row; `commit=False` stays in the row.

    Inside `steps()` or `step()` the current step is the row, as for every run.
    """

    project = entity = notes = job_type = ""
    tags: tuple[str, ...] = ()
    disabled = offline = resumed = False
    sweep_id: str | None = None
    _files: Path | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begin_rows()

    @classmethod
    def of(cls, run: Run, group: str) -> Self:
        """A run that another library began in this process becomes one of these."""
        mine = front.taken_over(run, cls)
        mine._begin_rows()
        attempt("take a run over", None, lambda: front.told_again(mine, group))
        return mine

    def _begin_rows(self) -> None:
        self._rows = Rows()
        self._metrics: list[Metric] = []
        self.summary = Summary()
        self.summary._listen(self._record_summary)

    # ── log ───────────────────────────────────────────────────────────────────────────────────

    @guarded("log")
    def log(
        self,
        data: Mapping[str, Any] | None = None,
        /,
        step: int | None = None,
        commit: bool | None = None,
        **values: Any,
    ) -> None:
        if data is None and isinstance(values.get("data"), Mapping):
            data = values.pop("data")
        values.pop("sync", None)
        if data is not None and not isinstance(data, Mapping):
            Edge.log(self, data, step, **values)  # which says what it takes
            return
        in_step = step is None and self._step != NO_STEP
        at = None if in_step else self._rows.at(step, commit)
        row = {**(data or {}), **values}
        if not all(type(value) is float or type(value) is int for value in row.values()):
            row = self._flat(row)
        self._follow(row)
        Edge.log(self, row, at)

    def _flat(self, row: Mapping[Any, Any], before: str = "", depth: int = _DEEP) -> dict[str, Any]:
        """{"train": {"loss": 1}} is train.loss, and what is no number becomes a small text."""
        flat: dict[str, Any] = {}
        for key, value in row.items():
            name = before + (key if isinstance(key, str) else text_of(key))
            if isinstance(value, Mapping) and value and depth:
                flat |= self._flat(value, f"{name}.", depth - 1)
            elif (kept := _kept(value)) is not None:
                flat[name] = kept
        return flat

    def _follow(self, row: Mapping[str, Any]) -> None:
        plain = {name: value for name, value in row.items() if type(value) in _PLAIN}
        self.summary.follow(plain if not self._metrics else self._judged(plain))

    def _judged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """With `define_metric(…, summary="min")` the summary keeps the smallest."""
        judged = dict(values)
        for metric in self._metrics:
            for name, value in values.items():
                if metric.kinds and isinstance(value, float | int) and _meant(metric, name):
                    judged[name] = metric.of(self.summary.get(name), value)
        return judged

    def _write(self, logged: Logged) -> None:
        super()._write(logged)
        if isinstance(logged.reading, float) and not logged.labels:
            self._follow({logged.name: logged.reading})

    @guarded("record the summary")
    def _record_summary(self) -> None:
        if not self._finished and (values := self.summary.of_the_program()):
            self._config_event("user", {"summary": mapping(values)})

    # ── about the run ─────────────────────────────────────────────────────────────────────────

    @guarded("say what the run is about")
    def _about(self, about: Mapping[str, Any], files: Any) -> None:
        """Project, tags and notes: attributes, and part of the recorded configuration."""
        for name, value in about.items():
            setattr(self, name, value)
        self._files = None if files is None else Path(files)
        if about and not self.disabled:
            self._config_event("user", {"wandb": mapping(about)})

    @property
    def dir(self) -> str:
        """A folder for the program's own files.  They stay where they are."""
        folder = (self._files or Path.cwd()) / "runwatch-files" / self.id
        with suppress(OSError):  # the program's own attempt to write there says why
            folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    @property
    def path(self) -> str:
        return "/".join(part for part in (self.entity, self.project, self.id) if part)

    def project_name(self) -> str:
        return self.project

    @property
    def step(self) -> Row:
        """The row that the next `log` goes to.  `run.step(7)` is a step, as for every run."""
        now = self._rows.row if self._step == NO_STEP else self._step
        return Row(now, partial(Run.step, self))

    def define_metric(
        self,
        name: str,
        step_metric: Any = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        **options: Any,
    ) -> Metric:
        """`summary="min"` or "max" decides what `run.summary` keeps.

        The axis of every metric is the step: `step_metric` is recorded as a metric of its own.
        """
        axis = getattr(step_metric, "name", step_metric)
        metric = Metric(text_of(name), axis, summary if isinstance(summary, str) else None)
        self._metrics.append(metric)
        return metric

    @guarded("record an alert")
    def alert(
        self, title: str = "", text: str = "", level: Any = None, wait_duration: Any = None
    ) -> None:
        word = text_of(getattr(level, "value", level) or "INFO")
        said = {"title": text_of(title)[:200], "text": text_of(text)[:5000], "level": word[:20]}
        Edge.log(self, {"alert": said})

    def log_artifact(self, artifact: Any, name: Any = None, *args: Any, **options: Any) -> Any:
        """Its name and the names of its files are recorded; the files stay where they are."""
        if not isinstance(artifact, media.Artifact):
            files, artifact = artifact, media.Artifact(text_of(name or artifact))
            artifact.add_file(files)
        Edge.log(self, {"artifact": media.told(artifact) or {}})
        return artifact

    def __getattr__(self, name: str) -> Any:
        """`run.watch`, `run.save` and other calls that only the module has."""
        if name in _WITHOUT_MEANING:
            return _WITHOUT_MEANING[name]
        from runwatch.sdk.wandb_like import calls

        if name in calls.OF_A_RUN:
            return getattr(calls, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    def _end(self, end: RunEnd) -> None:
        if not self._finished and not self._is_child:
            attempt("read the config", None, self._assigned_config)
        super()._end(end)

    def _assigned_config(self) -> None:
        """Old programs say `wandb.config = {…}`, which sets an attribute of our module."""
        import runwatch

        if isinstance(assigned := vars(runwatch).get("config"), Mapping):
            del runwatch.config
            self.config.update(assigned)


class Disabled(LikeWandb):
    """`init(mode="disabled")`: everything can be called and nothing is recorded."""

    disabled = True

    def _accept(self, logged: Logged) -> None:
        pass

    def _open(self) -> JournalWriter | None:
        return None


def _meant(metric: Metric, name: str) -> bool:
    return metric.name == name or fnmatchcase(name, metric.name)


def _kept(value: Any) -> Any:
    """A value for `Edge.log`: a number, or a text about something else."""
    if isinstance(value, media.Media | media.Artifact):
        return media.told(value)
    if isinstance(value, str | bytes) or not (isinstance(value, Sequence) or _is_row(value)):
        return value
    if isinstance(value, Sequence) and any(isinstance(v, media.Media) for v in value):
        return media.told(next(v for v in value if isinstance(v, media.Media)))
    if len(value) == 1 or media.on_device(value):
        return value
    if len(value) > MAX_LIST:
        return media.told(media.Histogram(value))
    return text(str([media.cell(item) for item in value]))


def _is_row(value: Any) -> bool:
    """An array or a tensor with more than one number."""
    return bool(getattr(value, "ndim", 0)) and hasattr(value, "__len__")
