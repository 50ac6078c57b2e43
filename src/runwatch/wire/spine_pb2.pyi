from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Up(_message.Message):
    __slots__ = ("hello", "open", "batch", "ping", "batches")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    open: Open
    batch: Batch
    ping: Ping
    batches: Batches
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., batches: _Optional[_Union[Batches, _Mapping]] = ...) -> None: ...

class Down(_message.Message):
    __slots__ = ("welcome", "cursor", "pong", "command", "cursors")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    cursor: Cursor
    pong: Pong
    command: Command
    cursors: Cursors
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ..., cursors: _Optional[_Union[Cursors, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("oldest_wire_version", "newest_wire_version", "host", "runwatch_version", "wall_ns", "agent", "commands")
    OLDEST_WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RUNWATCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    WALL_NS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    oldest_wire_version: int
    newest_wire_version: int
    host: str
    runwatch_version: str
    wall_ns: int
    agent: str
    commands: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, oldest_wire_version: _Optional[int] = ..., newest_wire_version: _Optional[int] = ..., host: _Optional[str] = ..., runwatch_version: _Optional[str] = ..., wall_ns: _Optional[int] = ..., agent: _Optional[str] = ..., commands: _Optional[_Iterable[str]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("wire_version", "runwatch_version", "wall_ns")
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNWATCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    WALL_NS_FIELD_NUMBER: _ClassVar[int]
    wire_version: int
    runwatch_version: str
    wall_ns: int
    def __init__(self, wire_version: _Optional[int] = ..., runwatch_version: _Optional[str] = ..., wall_ns: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("journal",)
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    journal: str
    def __init__(self, journal: _Optional[str] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("journal", "position", "refused", "why")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    journal: str
    position: int
    refused: bool
    why: str
    def __init__(self, journal: _Optional[str] = ..., position: _Optional[int] = ..., refused: bool = ..., why: _Optional[str] = ...) -> None: ...

class Cursors(_message.Message):
    __slots__ = ("cursors",)
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("wall_ns", "alive")
    WALL_NS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    wall_ns: int
    alive: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, wall_ns: _Optional[int] = ..., alive: _Optional[_Iterable[str]] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("wall_ns", "problem")
    WALL_NS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    wall_ns: int
    problem: str
    def __init__(self, wall_ns: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "kind", "body_json", "issued_ns", "expires_ns")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BODY_JSON_FIELD_NUMBER: _ClassVar[int]
    ISSUED_NS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_NS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    body_json: str
    issued_ns: int
    expires_ns: int
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., body_json: _Optional[str] = ..., issued_ns: _Optional[int] = ..., expires_ns: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: FileHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[FileHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class FileHeader(_message.Message):
    __slots__ = ("path", "bytes", "host")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    path: str
    bytes: int
    host: str
    def __init__(self, path: _Optional[str] = ..., bytes: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("bytes", "problem")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    problem: str
    def __init__(self, bytes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("origin", "start", "end", "definitions", "points", "spans", "events", "skipped_records")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    start: int
    end: int
    definitions: _containers.RepeatedCompositeFieldContainer[Definition]
    points: Points
    spans: Spans
    events: _containers.RepeatedCompositeFieldContainer[Event]
    skipped_records: int
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., definitions: _Optional[_Iterable[_Union[Definition, _Mapping]]] = ..., points: _Optional[_Union[Points, _Mapping]] = ..., spans: _Optional[_Union[Spans, _Mapping]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., skipped_records: _Optional[int] = ...) -> None: ...

class Batches(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    def __init__(self, batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("journal", "host", "pid", "start_ns", "boot", "process_start_ticks", "role", "version")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_START_TICKS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    journal: str
    host: str
    pid: int
    start_ns: int
    boot: str
    process_start_ticks: int
    role: str
    version: str
    def __init__(self, journal: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., start_ns: _Optional[int] = ..., boot: _Optional[str] = ..., process_start_ticks: _Optional[int] = ..., role: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Definition(_message.Message):
    __slots__ = ("run", "series", "span")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    run: RunScope
    series: Series
    span: SpanName
    def __init__(self, run: _Optional[_Union[RunScope, _Mapping]] = ..., series: _Optional[_Union[Series, _Mapping]] = ..., span: _Optional[_Union[SpanName, _Mapping]] = ...) -> None: ...

class RunScope(_message.Message):
    __slots__ = ("id", "run", "name", "rank", "world_size", "attempt_key", "group")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    id: int
    run: str
    name: str
    rank: int
    world_size: int
    attempt_key: str
    group: str
    def __init__(self, id: _Optional[int] = ..., run: _Optional[str] = ..., name: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., attempt_key: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("id", "metric", "scope", "unit", "device", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: int
    metric: str
    scope: int
    unit: str
    device: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[int] = ..., metric: _Optional[str] = ..., scope: _Optional[int] = ..., unit: _Optional[str] = ..., device: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SpanName(_message.Message):
    __slots__ = ("id", "name", "scope")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    scope: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., scope: _Optional[int] = ...) -> None: ...

class Points(_message.Message):
    __slots__ = ("series", "time_ns", "step", "value")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    series: bytes
    time_ns: bytes
    step: bytes
    value: bytes
    def __init__(self, series: _Optional[bytes] = ..., time_ns: _Optional[bytes] = ..., step: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Spans(_message.Message):
    __slots__ = ("name", "span", "edge", "time_ns", "step")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    span: bytes
    edge: bytes
    time_ns: bytes
    step: bytes
    def __init__(self, name: _Optional[bytes] = ..., span: _Optional[bytes] = ..., edge: _Optional[bytes] = ..., time_ns: _Optional[bytes] = ..., step: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("time_ns", "kind", "body_json", "step", "scope")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BODY_JSON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    kind: str
    body_json: str
    step: int
    scope: int
    def __init__(self, time_ns: _Optional[int] = ..., kind: _Optional[str] = ..., body_json: _Optional[str] = ..., step: _Optional[int] = ..., scope: _Optional[int] = ...) -> None: ...
