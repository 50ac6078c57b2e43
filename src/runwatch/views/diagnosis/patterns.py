"""The frames that show what a thread waits for: one line per pattern.

A Python pattern must match the whole name of a function, a native pattern any part of it; both may
match any part of the file name.  People read `what`; if it is empty, the function's own name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

Kind = Literal[
    "collective",  # waits for other ranks
    "peer",  # waits for one other rank: send, recv
    "device",  # waits for the accelerator, which may be in a collective
    "backward",  # in the backward pass, where gradients may be reduced
    "data",
    "checkpoint",
    "compile",
    "evaluation",
    "transfer",  # to or from a store
    "files",  # packs, copies or writes local files
    "collection",  # the interpreter collects garbage
    "idle",  # a prompt that waits for a person
    "await",  # a task of an event loop waits
    "subprocess",
    "lock",
    "socket",
    "pipe",
    "file",
    "sleep",
    "running",  # executes Python or native code
    "unknown",
]


@dataclass(frozen=True)
class Pattern:
    """Compiled when first used: most programs that import this look at no stack."""

    kind: Kind
    what: str
    functions: str
    files: str

    @cached_property
    def function(self) -> re.Pattern[str]:
        return re.compile(self.functions)

    @cached_property
    def file(self) -> re.Pattern[str]:
        return re.compile(self.files)


def _python(kind: Kind, what: str, function: str, file: str = "") -> Pattern:
    return Pattern(kind, what, rf"(?:{function})\Z", file)


def _native(kind: Kind, what: str, function: str, file: str = "") -> Pattern:
    return Pattern(kind, what, function, file)


_C10D = r"torch/distributed/(distributed_c10d|_functional_collectives|nn/functional)\.py"
_RENDEZVOUS = r"torch/distributed/(elastic/)?rendezvous"
_FSDP = r"torch/distributed/fsdp/"
_LOADER = r"torch/utils/data/dataloader\.py"
_WORKER = r"torch/utils/data/_utils/worker\.py"
_DATASETS = r"-packages/(datasets|streaming|webdataset)/"
_DCP = r"torch/distributed/checkpoint/"
_SAVING = r"torch/serialization\.py"
_TORCH_COMPILE = r"torch/(_dynamo/convert_frame|_inductor/(compile_fx|async_compile|codecache))"
_EXTENSION = r"torch/utils/cpp_extension\.py"
_AUTOGRAD = r"torch/(autograd/|_tensor\.py)"
_ANY_COLLECTIVE = r"(all|reduce|broad|gather|scatter|barrier|Barrier|monitored_).*"
_XLA_COMPILE = r"backend_compile.*|compile_or_get_cached|_compile_and_.*"
_PROCESS = r"multiprocessing/(popen_\w+|process)\.py$"
_CONNECTION = r"multiprocessing/connection\.py$"

_KERNEL = r"-packages/ipykernel(/|_launcher\.py)"
_IPYTHON = r"-packages/(IPython|ipykernel)/"
_STORES = r"-packages/(fsspec|s3fs|gcsfs|adlfs|boto3|botocore|s3transfer|huggingface_hub)/"
_CLOUD = r"-packages/google/(cloud/storage|resumable_media|auth)/"
_HTTP = (
    r"-packages/(urllib3|requests|httpx|httpcore|aiohttp)/"
    r"|/python3\.\d+/(http/client|urllib/request)\.py$"
)
_PACKING = r"/python3\.\d+/(gzip|zipfile|tarfile|lzma|bz2|shutil|_compression)(/__init__)?\.py$"
_EVALUATORS = r"-packages/(transformers|keras|accelerate|lm_eval|evaluate)/"
_LIGHTNING = r"-packages/(pytorch_)?lightning/.*(evaluation|prediction)_loop\.py"

PYTHON: Final[tuple[Pattern, ...]] = (
    # A running cell is the user's program; the frames that called it say nothing.
    _python(
        "running", "a cell", r"run_code|run_cell\w*|_run_cell|do_execute|execute_request", _IPYTHON
    ),
    _python(
        "idle",
        "a debugger's prompt",
        r".*cmdloop|interaction|user_line",
        r"/python3\.\d+/(pdb|cmd|bdb)\.py$",
    ),
    _python("idle", "a prompt", r"interact|raw_input", r"/python3\.\d+/code\.py$"),
    _python(
        "idle", "a prompt", r"interact|mainloop|prompt_for_code", r"-packages/IPython/terminal"
    ),
    _python("idle", "a notebook kernel that runs no cell", r"start|launch_\w+|main", _KERNEL),
    _python("peer", "", r"i?send|i?recv|(send|recv)_object_list|batch_isend_irecv", _C10D),
    _python("collective", "rendezvous", r"init_process_group|_store_based_barrier", _C10D),
    _python("collective", "rendezvous", r".*", _RENDEZVOUS),
    _python("collective", "new_group", r"_?new_(process_)?group.*|split_group", _C10D),
    _python("collective", "", _ANY_COLLECTIVE, _C10D),
    _python("collective", "wait", r"wait(_tensor)?", _C10D),
    _python("collective", "unshard", r"_?unshard|wait_for_unshard", _FSDP),
    _python("collective", "", _ANY_COLLECTIVE, r"-packages/(horovod|deepspeed/comm|mpi4py)"),
    _python("collective", "", r"sync_global_devices|process_allgather", r"jax/"),
    _python("collective", "", r"broadcast_one_to_all|assert_equal", r"jax/"),
    _python("collective", "", r"wait_at_barrier|blocking_key_value_get.*", r"jax|orbax"),
    _python("collective", "initialize", r"initialize", r"jax/_src/distributed\.py"),
    _python("device", "", r"synchronize", r"torch/(cuda|xpu|accelerator)/"),
    _python("device", "", r"block_until_ready|device_get|_value|__array__", r"jax/"),
    _python("data", "DataLoader.__next__", r"__next__|_next_data|_(try_)?get_data", _LOADER),
    _python("data", "DataLoader.__iter__", r"__iter__|_get_iterator|__init__|_reset", _LOADER),
    _python("data", "DataLoader worker", r"_worker_loop", _WORKER),
    _python("data", "DataLoader", r"fetch|_next_index", r"torch/utils/data/"),
    _python("data", "grain", r"__next__|__iter__|get_element.*", r"-packages/grain/"),
    _python("data", "tf.data", r"__next__|_next_internal", r"tensorflow/python/data/"),
    _python("data", "datasets", r"__iter__|__getitems?__|_iter_.*", _DATASETS),
    _python("checkpoint", "torch.save", r"_?save|_legacy_save", _SAVING),
    _python("checkpoint", "torch.load", r"_?load|_legacy_load", _SAVING),
    _python("checkpoint", "torch.distributed.checkpoint", r".*", _DCP),
    _python("checkpoint", "orbax", r".*", r"-packages/orbax/"),
    _python("checkpoint", "safetensors", r"save.*|load.*", r"-packages/safetensors/"),
    _python("compile", "XLA compilation", _XLA_COMPILE, r"jax/"),
    _python("compile", "torch.compile", r".*", _TORCH_COMPILE),
    _python("compile", "Triton compilation", r"_?(do_)?compile|make_.*", r"-packages/triton/"),
    _python("compile", "building an extension", r"load|_jit_compile", _EXTENSION),
    _python(
        "compile", "tracing for XLA", r"trace_to_\w+|_?lower\w*|_create_pjit_jaxpr", r"jax/_src/"
    ),
    _python("evaluation", "evaluation", r"evaluat\w*|predict\w*", _EVALUATORS),
    _python("evaluation", "evaluation", r".*", _LIGHTNING),
    _python("transfer", "a store", r".*", _STORES),
    _python("transfer", "a store", r".*", _CLOUD),
    _python("socket", "an answer over HTTP", r".*", _HTTP),
    _python("files", "packing or copying files", r".*", _PACKING),
    _python(
        "subprocess", "a pool of processes", r"get|wait|join|next|map", r"processing/pool\.py$"
    ),
    _python("subprocess", "a child process", r"_?(try_)?wait|_?communicate", r"/subprocess\.py$"),
    _python("subprocess", "a child process", r"wait|poll|join", _PROCESS),
    _python("backward", "backward", r"_engine_run_backward|backward", _AUTOGRAD),
)
"""Python functions that show a purpose."""

NATIVE: Final[tuple[Pattern, ...]] = (
    _native("collective", "gradient all_reduce", r"c10d::Reducer::"),
    _native("collective", "rendezvous", r"c10d::(TCP|File|Prefix|Hash)Store|TCPClient|tcputil"),
    _native("collective", "", r"c10d::(ProcessGroup|Work|Backend|ops)"),
    _native("collective", "", r"Work(NCCL|Gloo|MPI|UCC|XCCL)\b"),
    _native("collective", "", r"^gloo::(?!transport::.*(loop|Loop))"),
    _native("collective", "NCCL", r"^p?nccl[A-Z]\w*|ncclKernel|ncclDevKernel|^rccl"),
    _native("collective", "MPI", r"^P?MPI_[A-Z]\w*|ompi_coll_|MPIR_"),
    _native("collection", "garbage collection", r"^_?(Py)?_?gc_collect|^_PyGC_|^subtract_refs"),
    _native(
        "collection", "garbage collection", r"^(deduce|move)_unreachable|^update_refs|^visit_\w+$"
    ),
    _native("compile", "XLA compilation", r"xla::.*(Compile|RunHloPasses|RunBackend)|^llvm::"),
    _native("device", "cudaSynchronize", r"^cu(da)?\w*(Stream|Event|Device|Ctx)\w*Synchronize"),
    _native("device", "hipSynchronize", r"^hip(Stream|Event|Device)\w*Synchronize"),
    _native("device", "copy from the device", r"^cuMemcpy|^cudaMemcpy|local_scalar_dense_cuda"),
    _native("device", "block_until_ready", r"(PyArray|xla::).*(BlockUntilReady|Await)"),
    _native("device", "XLA execution", r"xla::.*Execut(e|able)"),
    _native("data", "tf.data", r"tensorflow::data::"),
    _native("backward", "backward", r"THPEngine_run_backward"),
)
"""Native functions that show a purpose."""

HOW_NATIVE: Final[tuple[Pattern, ...]] = (
    _native("sleep", "sleep", r"nanosleep|^usleep|^time_sleep$|pysleep"),
    _native("subprocess", "a child process", r"^(__)?(wait4|waitpid|waitid|os_wait\w*)"),
    _native("socket", "recv", r"^(__)?(libc_)?recv(from|msg)?(_\w+)?$|^sock_recv"),
    _native("socket", "send", r"^(__)?(libc_)?send(to|msg)?(_\w+)?$|^sock_send"),
    _native("socket", "accept", r"^(__)?(libc_)?accept4?$|^sock_accept"),
    _native("socket", "connect", r"^(__)?(libc_)?connect$|^sock_connect"),
    _native("socket", "TLS", r"^SSL_(read|write|do_handshake)|^_ssl__SSLSocket"),
    _native("pipe", "poll", r"^(__)?p?poll(_\w+)?$|^p?select(_\w+)?$|^epoll_p?wait|^do_p?poll"),
    _native("file", "fsync", r"^(__)?(libc_)?f(data)?sync$|^os_f(data)?sync"),
    _native("file", "write", r"^(__)?(libc_)?p?writev?(64)?$|^_Py_write|^os_write"),
    _native("pipe", "read", r"^(__)?(libc_)?p?readv?(64)?$|^_Py_read|^os_read"),
    _native("file", "open", r"^(__)?(libc_)?open(at)?(64)?$"),
    _native("lock", "a lock", r"PyThread_acquire_lock|lock_acquire|rlock_acquire"),
    _native("lock", "a lock", r"futex|lll_lock_wait|pthread_mutex_lock|pthread_rwlock"),
    _native("lock", "a lock", r"^(__)?(new_)?sem_(timed|clock)?wait"),
    _native("lock", "a condition", r"pthread_cond_(timed|clock)?wait|condition_variable"),
    _native("lock", "the GIL", r"take_gil"),
)
"""How a thread waits, seen in native frames."""

HOW_PYTHON: Final[tuple[Pattern, ...]] = (
    _python("await", "a task to sleep", r"sleep", r"/asyncio/tasks\.py$"),
    _python("await", "a stream", r".*", r"/asyncio/(streams|sslproto|base_subprocess)\.py$"),
    _python("await", "a queue", r"get|put|join", r"/asyncio/queues\.py$"),
    _python("await", "a lock or an event", r"acquire|wait\w*|__aenter__", r"/asyncio/locks\.py$"),
    _python("await", "a task", r"_?wait\w*|gather|timeout", r"/asyncio/tasks\.py$"),
    _python("await", "the event loop", r"_run_once|run_forever", r"/asyncio/base_events\.py$"),
    _python("lock", "a thread to end", r"join|_wait_for_tstate_lock", r"/threading\.py$"),
    _python("lock", "a condition", r"wait|wait_for|acquire|__enter__", r"/threading\.py$"),
    _python("lock", "a queue", r"get|put|join", r"/queue\.py$"),
    _python("lock", "a future", r"result|exception|wait", r"/concurrent/futures/"),
    _python("pipe", "a pipe", r"_?recv.*|_?poll|_?send.*|wait", _CONNECTION),
    _python("pipe", "a queue of another process", r"get|put|_feed", r"multiprocessing/queues\.py$"),
    _python("socket", "socket", r"readinto|accept|create_connection", r"/socket\.py$"),
    _python("socket", "TLS", r"read|recv.*|send.*|do_handshake", r"/ssl\.py$"),
    _python("pipe", "select", r"select", r"/selectors\.py$"),
)
"""How a thread waits, seen in Python frames."""

BY_NAME: Final[tuple[Pattern, ...]] = (
    _python(
        "evaluation", "", r"(do_|run_)?(eval|evaluat\w*|validat\w*|(val|test)_epoch|predict\w*)"
    ),
    _python(
        "checkpoint", "", r"\w*(save|write|dump)_(checkpoint|model|state|weights)\w*|checkpoint"
    ),
    _python("data", "", r"\w*(tokeni[sz]\w*|preprocess\w*|shuffl\w*|load_(data|dataset)\w*)"),
    _python("transfer", "", r"\w*(down|up)load\w*"),
    _python("compile", "", r"\w*(re)?compile\w*|warm_?up"),
)
"""Common names of users' own functions: a hint where nothing else shows what a thread does."""
