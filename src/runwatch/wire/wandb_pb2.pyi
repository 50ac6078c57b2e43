from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("num", "history", "summary", "output", "config", "files", "stats", "artifact", "tensorboard", "alert", "output_raw", "run", "exit", "use_artifact", "environment")
    NUM_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    TENSORBOARD_FIELD_NUMBER: _ClassVar[int]
    ALERT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_RAW_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    USE_ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    num: int
    history: History
    summary: Update
    output: Output
    config: Update
    files: bytes
    stats: Stats
    artifact: bytes
    tensorboard: bytes
    alert: Alert
    output_raw: Output
    run: Run
    exit: Exit
    use_artifact: bytes
    environment: Environment
    def __init__(self, num: _Optional[int] = ..., history: _Optional[_Union[History, _Mapping]] = ..., summary: _Optional[_Union[Update, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., config: _Optional[_Union[Update, _Mapping]] = ..., files: _Optional[bytes] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ..., artifact: _Optional[bytes] = ..., tensorboard: _Optional[bytes] = ..., alert: _Optional[_Union[Alert, _Mapping]] = ..., output_raw: _Optional[_Union[Output, _Mapping]] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., use_artifact: _Optional[bytes] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ...) -> None: ...

class Time(_message.Message):
    __slots__ = ("seconds", "nanos")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    NANOS_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    nanos: int
    def __init__(self, seconds: _Optional[int] = ..., nanos: _Optional[int] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("key", "nested_key", "value_json")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NESTED_KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    nested_key: _containers.RepeatedScalarFieldContainer[bytes]
    value_json: bytes
    def __init__(self, key: _Optional[bytes] = ..., nested_key: _Optional[_Iterable[bytes]] = ..., value_json: _Optional[bytes] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("update", "remove")
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    update: _containers.RepeatedCompositeFieldContainer[Item]
    remove: _containers.RepeatedCompositeFieldContainer[Item]
    def __init__(self, update: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[Item, _Mapping]]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("num",)
    NUM_FIELD_NUMBER: _ClassVar[int]
    num: int
    def __init__(self, num: _Optional[int] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("item", "step")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    item: _containers.RepeatedCompositeFieldContainer[Item]
    step: Step
    def __init__(self, item: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., step: _Optional[_Union[Step, _Mapping]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("output_type", "timestamp", "line")
    OUTPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    output_type: int
    timestamp: Time
    line: bytes
    def __init__(self, output_type: _Optional[int] = ..., timestamp: _Optional[_Union[Time, _Mapping]] = ..., line: _Optional[bytes] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ("timestamp", "item")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    timestamp: Time
    item: _containers.RepeatedCompositeFieldContainer[Item]
    def __init__(self, timestamp: _Optional[_Union[Time, _Mapping]] = ..., item: _Optional[_Iterable[_Union[Item, _Mapping]]] = ...) -> None: ...

class Alert(_message.Message):
    __slots__ = ("title", "text")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    text: bytes
    def __init__(self, title: _Optional[bytes] = ..., text: _Optional[bytes] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "entity", "project", "config", "summary", "run_group", "job_type", "display_name", "notes", "tags", "sweep_id", "host", "start_time")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    RUN_GROUP_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SWEEP_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    run_id: bytes
    entity: bytes
    project: bytes
    config: Update
    summary: Update
    run_group: bytes
    job_type: bytes
    display_name: bytes
    notes: bytes
    tags: _containers.RepeatedScalarFieldContainer[bytes]
    sweep_id: bytes
    host: bytes
    start_time: Time
    def __init__(self, run_id: _Optional[bytes] = ..., entity: _Optional[bytes] = ..., project: _Optional[bytes] = ..., config: _Optional[_Union[Update, _Mapping]] = ..., summary: _Optional[_Union[Update, _Mapping]] = ..., run_group: _Optional[bytes] = ..., job_type: _Optional[bytes] = ..., display_name: _Optional[bytes] = ..., notes: _Optional[bytes] = ..., tags: _Optional[_Iterable[bytes]] = ..., sweep_id: _Optional[bytes] = ..., host: _Optional[bytes] = ..., start_time: _Optional[_Union[Time, _Mapping]] = ...) -> None: ...

class Exit(_message.Message):
    __slots__ = ("exit_code", "runtime")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    runtime: int
    def __init__(self, exit_code: _Optional[int] = ..., runtime: _Optional[int] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("os", "python", "args", "program", "root", "host", "username", "executable", "cpu_count", "gpu_type", "gpu_count")
    OS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    GPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    os: bytes
    python: bytes
    args: _containers.RepeatedScalarFieldContainer[bytes]
    program: bytes
    root: bytes
    host: bytes
    username: bytes
    executable: bytes
    cpu_count: int
    gpu_type: bytes
    gpu_count: int
    def __init__(self, os: _Optional[bytes] = ..., python: _Optional[bytes] = ..., args: _Optional[_Iterable[bytes]] = ..., program: _Optional[bytes] = ..., root: _Optional[bytes] = ..., host: _Optional[bytes] = ..., username: _Optional[bytes] = ..., executable: _Optional[bytes] = ..., cpu_count: _Optional[int] = ..., gpu_type: _Optional[bytes] = ..., gpu_count: _Optional[int] = ...) -> None: ...
