"""What `import runwatch` offers: the current run, and calls that go to it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import methodcaller
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from runwatch.record import NO_STEP, RunId
from runwatch.record.life import Joined
from runwatch.sdk import auto as automatic
from runwatch.sdk import launch
from runwatch.sdk.guard import attempt, front, guarded, tally, text_of
from runwatch.sdk.identity import Identity, identify, slug
from runwatch.sdk.run import Run
from runwatch.sdk.step import Spanning
from runwatch.sdk.step import data as step_data
from runwatch.sdk.stepping import OpenSpan
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.intake import Waiting
from runwatch.sdk.values.numbers import step_number
from runwatch.sdk.values.plain import config_values, text

if TYPE_CHECKING:  # a training process does not load the views
    from runwatch.sdk.wandb_like.start import Asked
    from runwatch.views.goodput.classes import Kind

T = TypeVar("T")
AnyRun = TypeVar("AnyRun", bound=Run)

_NO_RUN: Final = "there is no run: call runwatch.init() first"


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.run: Run | None = None
        self.waiting = Waiting()
        self.config = ConfigDict()
        self.ids: dict[RunId, str] = {}
        """Run id -> name, for the ids used in this process."""
        self.begun: dict[str, Run] = {}
        """Runs by name that something other than `init` began: `init` takes them over."""


_state = _State()
front.edge = _state.waiting


def init(
    name: str | None = None,
    *,
    group: str = "",
    config: Any = None,
    id: str | None = None,
    record_on_all_hosts: bool = False,
    total_steps: int | None = None,
    dir: str | os.PathLike[str] | None = None,
    auto: bool = False,
    console: bool | None = None,
    **others: Any,
) -> Run:
    """Begin this process's part in the run called `name`; every rank calls it.

    A name used before is the same run and a new attempt.  `config` is a dict, a dataclass or a
    namespace.  Only rank 0 records the values of `log`, unless `record_on_all_hosts`.  With
    `total_steps`, a process that ends before its last step is known to be incomplete.  Records go
    to `dir`, else $RUNWATCH_DIR, else ~/.runwatch.  With `auto`, hooks record what the frameworks
    do: steps, waits for data, metrics, phases.  With `console` (or RUNWATCH_CONSOLE=1), what the
    program prints is recorded too.  Never raises and never waits.

    wandb's arguments are understood too (`sdk/wandb_like/start.py`): `project` is the group.
    """
    given = {"name": name, "group": group, "config": config, "id": id, "dir": dir}
    asked = _asked_as_wandb(given, others, sys._getframe(1))
    if asked is not None:
        name, group, id, config, dir = asked.name, asked.group, asked.id, asked.config, None
    kind: type[Run] = Run if asked is None else asked.kind

    def make(identity: Identity) -> Run:
        if auto or others.get("sync_tensorboard"):  # wandb's word for a part of the same
            automatic.begin(stays=False)
        return kind(
            identity,
            group=group,
            record_on_all_hosts=record_on_all_hosts,
            total_steps=attempt("read total_steps", None, lambda: step_number(total_steps)),
            directory=dir,
        )

    identified = attempt("identify the run", None, lambda: identify(name, run_id=id))
    identity = identified or Identity(slug(text_of(name)), "run", 0, 0, 1, "", "NONE")
    nothing: dict[str, Any] = {}
    values = attempt("read the config", nothing, lambda: config_values(config))
    if asked is None:
        run = begin(identity, make, values, Run)
    else:
        run = begin(asked.numbered(identity, current_run()), make, values, kind, asked.adoption)
        asked.tell(run)
    _listen(run, console)
    return run


@guarded("listen to the console")
def _listen(run: Run, console: bool | None) -> None:
    if console or os.environ.get("RUNWATCH_CONSOLE"):
        from runwatch.sdk.console import wrapping  # most programs do not want it

        wrapping.listen(run, console)


def _asked_as_wandb(
    given: Mapping[str, Any], others: Mapping[str, Any], caller: FrameType
) -> Asked | None:
    """What `init` asks for in wandb's words; None if it does not use them."""
    known = caller.f_globals.get("wandb") or caller.f_locals.get("wandb")
    by_name = known is not None and known is sys.modules.get("runwatch")  # import … as wandb
    if not others and not by_name:
        return None

    def read() -> Asked | None:
        from runwatch.sdk.wandb_like import start

        start.ignore(others)
        return start.asked(given, others) if by_name or start.is_wandbs(others) else None

    return attempt("read wandb's arguments", None, read)


def begin(
    identity: Identity,
    make: Callable[[Identity], AnyRun],
    config: Mapping[str, Any],
    kind: type[AnyRun],
    adopt: Callable[[Run], AnyRun] | None = None,
) -> AnyRun:
    """Make it the current run, or return the one of its name that is going on.

    A process has one run of a name, however many libraries ask for it.  `adopt` turns one that a
    library of another kind began into one of this kind.
    """
    with _state.lock:
        current = _current_of_process()
        if current is not None and current._identity.name != identity.name:
            _make_room(current, identity)
            current = None
        known = current or _offered(identity)
        run: AnyRun | None = None
        if isinstance(known, kind):
            run = known
        elif known is not None and adopt is not None:
            run = adopt(known)
        elif known is not None:
            known.finish()
        if run is None:
            run = make(_distinct(identity))
            run._start({**_state.config, **config})
        else:
            if current is not None and not run._by_hooks:
                tally.count("init again", f"run {identity.name!r} is going on: init() returns it")
            run._by_hooks = False
            _state.ids.setdefault(run.id, identity.name)
            if _state.config or config:
                run.config.update({**_state.config, **config})
        _state.run = run
        _state.config = ConfigDict()
        tally.listener = run._report
        front.edge = run
        _deliver(run)
        return run


def begin_for_hooks() -> Run:
    """The run of a process that trains and has not asked for one: what a library offered, or a new
    one, which makes room for the first that the program asks for."""
    with _state.lock:
        offered = next((run for run in _state.begun.values() if not run._finished), None)
        if offered is not None:
            return init(offered._identity.name, id=offered.id)
        current = _current_of_process()
        if current is not None:
            return current
        run = init()
        run._by_hooks = True
        return run


def _make_room(current: Run, identity: Identity) -> None:
    """Another run begins.  What hooks began just before was this run, under a name that we gave."""
    if current._by_hooks and current._step == NO_STEP:
        _leave(current, _distinct(identity).run)
    else:
        current.finish()


def _current_of_process() -> Run | None:
    current = current_run()
    return None if current is None or current._is_child else current


def offer(run: Run) -> None:
    """A run that is not the current one; `init` with its name makes it current."""
    _state.begun[run._identity.name] = run


def _offered(identity: Identity) -> Run | None:
    """The run of that name that was offered.  If it has another id, the process leaves it: other
    ranks, whose libraries offered none, are in the run with this id."""
    same_id = (name for name, run in _state.begun.items() if run.id == identity.run)
    run = _state.begun.pop(identity.name, None) or _state.begun.pop(next(same_id, ""), None)
    if run is None or run._finished:
        return None
    if run.id == identity.run:
        return run
    _leave(run, _distinct(identity).run)
    return None


@guarded("go over to another run")
def _leave(run: Run, other: RunId) -> None:
    """The process's part is in the other run from now on."""
    run._left_for = other
    writer = run._open()
    if writer is not None:
        writer.tell(Joined(other), scope=run._scope)
    run.finish()


def taken_over(run: Run, kind: type[AnyRun]) -> AnyRun:
    """The run, which another library began in this process, with what this kind has beside."""
    parts = (kind,) if type(run) in kind.__mro__ else (kind, type(run))
    run.__class__ = kind if len(parts) == 1 else type(kind.__name__, parts, {})
    assert isinstance(run, kind)
    return run


def told_again(run: Run, group: str) -> None:
    """The run has become one of another kind, which may name a group and more details."""
    run.group = run.group or text(text_of(group))[:200]
    writer = run._open()
    if writer is not None:
        run._scope = writer.scope(run._part)
        run._tell_start(writer)


@guarded("deliver what was recorded before the run")
def _deliver(run: Run) -> None:
    records = _state.waiting.logged
    while records:
        run._accept(records.popleft())


def _distinct(identity: Identity) -> Identity:
    """One job may have several runs in turn: an id from the job alone would mix them."""
    name = _state.ids.setdefault(identity.run, identity.name)
    if name == identity.name:
        return identity
    mark = slug(identity.name + "/")[-8:]
    return identity._replace(run=RunId(f"{identity.run[:55]}-{mark}"))


def current_run() -> Run | None:
    """The run that is going on in this process, if any."""
    run = _state.run
    return None if run is None or run._finished else run


def config() -> ConfigDict:
    """The current run's config; before there is a run, the config that it will begin with."""
    run = current_run()
    return _state.config if run is None else run.config


def log(data: Mapping[str, Any] | None = None, /, step: int | None = None, **values: Any) -> None:
    """`Run.log` of the current run.  Before there is a run, values wait for it."""
    front.edge.log(data, step, **values)


def steps(items: Iterable[T], *, start: int = 0) -> Iterator[tuple[int, T]]:
    """`Run.steps` of the current run."""
    run = _run_or_warn()
    if run is None:
        return enumerate(items, start)
    return run.steps(items, start=start)


def step(number: int) -> AbstractContextManager[None]:
    """`Run.step` of the current run."""
    run = _run_or_warn()
    return nullcontext() if run is None else run.step(number)


def begin_step(number: int | None = None) -> None:
    """`Run.begin_step` of the current run."""
    run = _run_or_warn()
    if run is not None:
        run.begin_step(number)


def end_step() -> None:
    """`Run.end_step` of the current run."""
    run = _run_or_warn()
    if run is not None:
        run.end_step()


def begin_span(name: Kind | str, *, useful: bool = False) -> OpenSpan:
    """`Run.begin_span` of the current run."""
    run = _run_or_warn()
    return OpenSpan(None) if run is None else run.begin_span(name, useful=useful)


def data(items: Iterable[T]) -> Iterable[T]:
    """`Run.data` of the run that is current when the items are requested."""
    return step_data(_run_or_warn, items)


def span(name: Kind | str, *, useful: bool = False) -> Spanning:
    """`Run.span` of the run that is current when the block or the decorated function is entered."""
    return _OfCurrent(methodcaller("span", name, useful=useful))


def profile(
    *,
    steps: int | None = None,
    seconds: float | None = None,
    session: str | None = None,
    path: str | os.PathLike[str] | None = None,
    frameworks: Sequence[str] = (),
    **options: bool,
) -> Spanning:
    """`Run.profile` of the run that is current when the block or the decorated function is entered.

    For `start()` and `stop()`, ask the run itself: `current_run().profile()`.
    """
    return _OfCurrent(
        methodcaller(
            "profile",
            steps=steps,
            seconds=seconds,
            session=session,
            path=path,
            frameworks=frameworks,
            **options,
        )
    )


class _OfCurrent(Spanning):
    """Functions are decorated when a module is loaded, before there is a run."""

    __slots__ = ("_make", "_open")

    def __init__(self, make: Callable[[Run], Spanning]) -> None:
        self._make = make
        self._open: Spanning | None = None

    def again(self) -> _OfCurrent:
        return _OfCurrent(self._make)

    def __enter__(self) -> None:
        run = _run_or_warn()
        self._open = None if run is None else self._make(run)
        if self._open is not None:
            self._open.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open is not None:
            self._open.__exit__(kind, error, traceback)


def _run_or_warn() -> Run | None:
    run = current_run()
    if run is None:
        tally.count("no run", _NO_RUN)
    return run


def finish(
    status: str | None = None,
    reason: str | None = None,
    exit_code: int | None = None,
    quiet: bool | None = None,
) -> None:
    """`Run.finish` of the current run; does nothing without one."""
    run = current_run()
    if run is not None:
        run.finish(status, reason, exit_code)


def _after_fork() -> None:
    _state.lock = threading.RLock()
    _state.waiting.logged.clear()  # the parent delivers these
    tally.forget()
    launch.forget()
    if _state.run is not None:
        _state.run._after_fork()


os.register_at_fork(after_in_child=_after_fork)
