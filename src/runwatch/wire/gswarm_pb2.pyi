from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GPUInfo(_message.Message):
    __slots__ = ("physical_idx", "name")
    PHYSICAL_IDX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    physical_idx: int
    name: str
    def __init__(self, physical_idx: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class InitialInfo(_message.Message):
    __slots__ = ("hostname", "gpus")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    gpus: _containers.RepeatedCompositeFieldContainer[GPUInfo]
    def __init__(self, hostname: _Optional[str] = ..., gpus: _Optional[_Iterable[_Union[GPUInfo, _Mapping]]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: bool = ..., message: _Optional[str] = ...) -> None: ...

class GPUMetric(_message.Message):
    __slots__ = ("physical_idx", "name", "gpu_util", "mem_util", "dram_bw_gbps_rx", "dram_bw_gbps_tx", "nvlink_bw_gbps_rx", "nvlink_bw_gbps_tx", "extra_metrics")
    PHYSICAL_IDX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPU_UTIL_FIELD_NUMBER: _ClassVar[int]
    MEM_UTIL_FIELD_NUMBER: _ClassVar[int]
    DRAM_BW_GBPS_RX_FIELD_NUMBER: _ClassVar[int]
    DRAM_BW_GBPS_TX_FIELD_NUMBER: _ClassVar[int]
    NVLINK_BW_GBPS_RX_FIELD_NUMBER: _ClassVar[int]
    NVLINK_BW_GBPS_TX_FIELD_NUMBER: _ClassVar[int]
    EXTRA_METRICS_FIELD_NUMBER: _ClassVar[int]
    physical_idx: int
    name: str
    gpu_util: float
    mem_util: float
    dram_bw_gbps_rx: float
    dram_bw_gbps_tx: float
    nvlink_bw_gbps_rx: float
    nvlink_bw_gbps_tx: float
    extra_metrics: _struct_pb2.Struct
    def __init__(self, physical_idx: _Optional[int] = ..., name: _Optional[str] = ..., gpu_util: _Optional[float] = ..., mem_util: _Optional[float] = ..., dram_bw_gbps_rx: _Optional[float] = ..., dram_bw_gbps_tx: _Optional[float] = ..., nvlink_bw_gbps_rx: _Optional[float] = ..., nvlink_bw_gbps_tx: _Optional[float] = ..., extra_metrics: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class P2PLink(_message.Message):
    __slots__ = ("local_gpu_physical_id", "local_gpu_name", "remote_gpu_physical_id", "remote_gpu_name", "type", "aggregated_max_bandwidth_gbps")
    LOCAL_GPU_PHYSICAL_ID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_GPU_NAME_FIELD_NUMBER: _ClassVar[int]
    REMOTE_GPU_PHYSICAL_ID_FIELD_NUMBER: _ClassVar[int]
    REMOTE_GPU_NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    AGGREGATED_MAX_BANDWIDTH_GBPS_FIELD_NUMBER: _ClassVar[int]
    local_gpu_physical_id: int
    local_gpu_name: str
    remote_gpu_physical_id: int
    remote_gpu_name: str
    type: str
    aggregated_max_bandwidth_gbps: float
    def __init__(self, local_gpu_physical_id: _Optional[int] = ..., local_gpu_name: _Optional[str] = ..., remote_gpu_physical_id: _Optional[int] = ..., remote_gpu_name: _Optional[str] = ..., type: _Optional[str] = ..., aggregated_max_bandwidth_gbps: _Optional[float] = ...) -> None: ...

class SystemMetrics(_message.Message):
    __slots__ = ("dram_util", "disk_util")
    DRAM_UTIL_FIELD_NUMBER: _ClassVar[int]
    DISK_UTIL_FIELD_NUMBER: _ClassVar[int]
    dram_util: float
    disk_util: float
    def __init__(self, dram_util: _Optional[float] = ..., disk_util: _Optional[float] = ...) -> None: ...

class MetricsUpdate(_message.Message):
    __slots__ = ("hostname", "gpus_metrics", "p2p_links", "system_metrics", "timestamp")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_METRICS_FIELD_NUMBER: _ClassVar[int]
    P2P_LINKS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_METRICS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    gpus_metrics: _containers.RepeatedCompositeFieldContainer[GPUMetric]
    p2p_links: _containers.RepeatedCompositeFieldContainer[P2PLink]
    system_metrics: SystemMetrics
    timestamp: float
    def __init__(self, hostname: _Optional[str] = ..., gpus_metrics: _Optional[_Iterable[_Union[GPUMetric, _Mapping]]] = ..., p2p_links: _Optional[_Iterable[_Union[P2PLink, _Mapping]]] = ..., system_metrics: _Optional[_Union[SystemMetrics, _Mapping]] = ..., timestamp: _Optional[float] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("freq", "enable_bandwidth_profiling", "enable_nvlink_profiling", "is_profiling", "output_filename", "frame_id_counter", "connected_clients", "active_sessions_json")
    FREQ_FIELD_NUMBER: _ClassVar[int]
    ENABLE_BANDWIDTH_PROFILING_FIELD_NUMBER: _ClassVar[int]
    ENABLE_NVLINK_PROFILING_FIELD_NUMBER: _ClassVar[int]
    IS_PROFILING_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FILENAME_FIELD_NUMBER: _ClassVar[int]
    FRAME_ID_COUNTER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SESSIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    freq: int
    enable_bandwidth_profiling: bool
    enable_nvlink_profiling: bool
    is_profiling: bool
    output_filename: str
    frame_id_counter: int
    connected_clients: _containers.RepeatedScalarFieldContainer[str]
    active_sessions_json: str
    def __init__(self, freq: _Optional[int] = ..., enable_bandwidth_profiling: bool = ..., enable_nvlink_profiling: bool = ..., is_profiling: bool = ..., output_filename: _Optional[str] = ..., frame_id_counter: _Optional[int] = ..., connected_clients: _Optional[_Iterable[str]] = ..., active_sessions_json: _Optional[str] = ...) -> None: ...

class StartProfilingRequest(_message.Message):
    __slots__ = ("name", "report_metrics")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPORT_METRICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    report_metrics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., report_metrics: _Optional[_Iterable[str]] = ...) -> None: ...

class StartProfilingResponse(_message.Message):
    __slots__ = ("success", "message", "output_file")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FILE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    output_file: str
    def __init__(self, success: bool = ..., message: _Optional[str] = ..., output_file: _Optional[str] = ...) -> None: ...

class StopProfilingRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class StopProfilingResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: bool = ..., message: _Optional[str] = ...) -> None: ...

class GPUStatus(_message.Message):
    __slots__ = ("gpu_id", "utilization", "memory_used", "memory_total", "dram_bandwidth", "nvlink_bandwidth", "temperature", "power")
    GPU_ID_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DRAM_BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    NVLINK_BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    gpu_id: int
    utilization: float
    memory_used: int
    memory_total: int
    dram_bandwidth: float
    nvlink_bandwidth: float
    temperature: float
    power: float
    def __init__(self, gpu_id: _Optional[int] = ..., utilization: _Optional[float] = ..., memory_used: _Optional[int] = ..., memory_total: _Optional[int] = ..., dram_bandwidth: _Optional[float] = ..., nvlink_bandwidth: _Optional[float] = ..., temperature: _Optional[float] = ..., power: _Optional[float] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node_id", "gpus")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    gpus: _containers.RepeatedCompositeFieldContainer[GPUStatus]
    def __init__(self, node_id: _Optional[str] = ..., gpus: _Optional[_Iterable[_Union[GPUStatus, _Mapping]]] = ...) -> None: ...

class ReadClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatusResponse(_message.Message):
    __slots__ = ("success", "message", "cluster_id", "nodes")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    def __init__(self, success: bool = ..., message: _Optional[str] = ..., cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ...) -> None: ...

class ReadNodeStatusRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class NodeStatusResponse(_message.Message):
    __slots__ = ("success", "message", "node_status")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NODE_STATUS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    node_status: NodeStatus
    def __init__(self, success: bool = ..., message: _Optional[str] = ..., node_status: _Optional[_Union[NodeStatus, _Mapping]] = ...) -> None: ...

class SetBandwidthRequest(_message.Message):
    __slots__ = ("enable",)
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    enable: bool
    def __init__(self, enable: bool = ...) -> None: ...

class SetNVLinkRequest(_message.Message):
    __slots__ = ("enable",)
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    enable: bool
    def __init__(self, enable: bool = ...) -> None: ...

class SetProfilingResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: bool = ..., message: _Optional[str] = ...) -> None: ...
