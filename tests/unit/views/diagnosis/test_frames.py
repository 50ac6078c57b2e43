"""What a thread waits for is read from frames of any source."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.views.diagnosis.frames import (
    main_thread,
    signature,
    threads_of,
    users_frame,
    wait_of,
)
from runwatch.views.diagnosis.patterns import HOW_NATIVE, HOW_PYTHON, NATIVE, PYTHON
from tests.unit.views.diagnosis.stories import (
    C10D,
    LOADER,
    SITE,
    frame,
    main,
    native,
    recorded,
    stacks,
    thread,
)

LIB = "/usr/lib/python3.11"


def read(*frames: dict[str, Any], idle: bool = True, gil: bool = False) -> Any:
    (found,) = threads_of(stacks(thread([*frames, frame("train_step", line=5), main()],
                                        idle=idle, gil=gil)))  # fmt: skip
    return wait_of(found)


PYTHON_WAITS = [
    ("all_gather_into_tensor", C10D, "collective", "all_gather_into_tensor"),
    ("reduce_scatter_tensor", C10D, "collective", "reduce_scatter_tensor"),
    ("broadcast", C10D, "collective", "broadcast"),
    ("barrier", C10D, "collective", "barrier"),
    ("recv", C10D, "peer", "recv"),
    ("batch_isend_irecv", C10D, "peer", "batch_isend_irecv"),
    ("init_process_group", C10D, "collective", "rendezvous"),
    ("new_group", C10D, "collective", "new_group"),
    ("unshard", f"{SITE}/torch/distributed/fsdp/_flat_param.py", "collective", "unshard"),
    ("sync_global_devices", f"{SITE}/jax/experimental/multihost_utils.py", "collective", None),
    ("ArrayImpl.block_until_ready", f"{SITE}/jax/_src/array.py", "device", "block_until_ready"),
    ("synchronize", f"{SITE}/torch/cuda/__init__.py", "device", "synchronize"),
    ("_try_get_data", LOADER, "data", "DataLoader.__next__"),
    ("__next__", f"{SITE}/grain/_src/python/data_loader.py", "data", "grain"),
    ("_next_internal", f"{SITE}/tensorflow/python/data/ops/iterator_ops.py", "data", "tf.data"),
    ("save", f"{SITE}/torch/serialization.py", "checkpoint", "torch.save"),
    ("_save", f"{SITE}/torch/distributed/checkpoint/x.py", "checkpoint", None),
    ("save", f"{SITE}/orbax/checkpoint/checkpointer.py", "checkpoint", "orbax"),
    ("backend_compile_and_load", f"{SITE}/jax/_src/compiler.py", "compile", "XLA compilation"),
    ("compile_fx_inner", f"{SITE}/torch/_inductor/compile_fx.py", "compile", "torch.compile"),
    ("compile", f"{SITE}/triton/compiler/compiler.py", "compile", "Triton compilation"),
    ("Popen.wait", f"{LIB}/subprocess.py", "subprocess", "a child process"),
    ("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", "backward", "backward"),
    ("Condition.wait", f"{LIB}/threading.py", "lock", "a condition"),
    ("Thread.join", f"{LIB}/threading.py", "lock", "a thread to end"),
    ("Queue.get", f"{LIB}/queue.py", "lock", "a queue"),
    ("Connection.recv_bytes", f"{LIB}/multiprocessing/connection.py", "pipe", "a pipe"),
    ("SocketIO.readinto", f"{LIB}/socket.py", "socket", "socket"),
]


@pytest.mark.parametrize(("function", "file", "kind", "what"), PYTHON_WAITS)
def test_python_frames(function: str, file: str, kind: str, what: str | None) -> None:
    wait = read(frame(function, file, 9), idle=False)
    assert wait.kind == kind
    assert what is None or wait.what == what
    assert wait.where is not None and wait.where.place == "train.py:5"


NATIVE_WAITS = [
    (["cuEventSynchronize"], "device", "cudaSynchronize"),
    (["cudaStreamSynchronize"], "device", "cudaSynchronize"),
    (["hipStreamSynchronize"], "device", "hipSynchronize"),
    (["ncclGroupEnd"], "collective", "NCCL"),
    (["pncclCommInitRankConfig"], "collective", "NCCL"),
    (["poll", "gloo::transport::tcp::UnboundBuffer::waitRecv"], "collective", "a collective"),
    (["c10d::ProcessGroupNCCL::WorkNCCL::synchronize"], "collective", "a collective"),
    (
        ["pthread_cond_wait", "c10d::Reducer::finalize_backward"],
        "collective",
        "gradient all_reduce",
    ),
    (["recv", "c10d::TCPStore::doWait"], "collective", "rendezvous"),
    (["MPI_Allreduce"], "collective", "MPI"),
    (["xla::PjRtCpuLoadedExecutable::Execute"], "device", "XLA execution"),
    (["llvm::SelectionDAG::Combine"], "compile", "XLA compilation"),
    (["__lll_lock_wait", "pthread_mutex_lock"], "lock", "a lock"),
    (["__futex_abstimed_wait_cancelable64", "take_gil"], "lock", "the GIL"),
    (["futex_wait", "PyThread_acquire_lock_timed", "rlock_acquire"], "lock", "a lock"),
    (["clock_nanosleep", "time_sleep"], "sleep", "sleep"),
    (["recv", "sock_recv"], "socket", "recv"),
    (["accept4", "sock_accept"], "socket", "accept"),
    (["poll", "select_poll_poll"], "pipe", "poll"),
    (["read", "_Py_read"], "pipe", "read"),
    (["fsync"], "file", "fsync"),
    (["wait4", "os_waitpid"], "subprocess", "a child process"),
]


@pytest.mark.parametrize(("functions", "kind", "what"), NATIVE_WAITS)
def test_native_frames(functions: list[str], kind: str, what: str) -> None:
    wait = read(*native(*functions))
    assert (wait.kind, wait.what) == (kind, what)


def test_every_pattern_is_a_line_with_words() -> None:
    for pattern in (*PYTHON, *NATIVE, *HOW_PYTHON, *HOW_NATIVE):
        assert pattern.what or pattern.kind in ("collective", "peer", "device")


def test_a_native_wait_has_the_name_of_the_call_that_began_it() -> None:
    calls = [frame("all_reduce", C10D, 9), frame("wrapper", f"{SITE}/torch/x.py")]
    assert read(*native("c10d::Work::wait"), *calls).what == "all_reduce"


def test_of_calls_inside_one_another_the_users_counts() -> None:
    calls = [frame("all_reduce", C10D, 9), frame("barrier", C10D, 8)]
    assert read(*calls).what == "barrier"


def test_a_collective_inside_a_checkpoint_is_a_collective() -> None:
    saving = frame("save", f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py")
    assert read(frame("gather_object", C10D, 9), saving).kind == "collective"


def test_a_thread_that_runs_waits_for_no_lock() -> None:
    frames = native("pthread_mutex_lock", "THPVariable_clear")
    assert read(*frames, idle=False).kind == "running"
    assert read(*frames, idle=True).kind == "lock"


def test_addresses_and_the_interpreters_own_frames_say_nothing() -> None:
    noise = native("0x7f00", "_PyEval_EvalFrameDefault", "PyObject_Vectorcall", "cfunction_call")
    (found,) = threads_of(stacks(thread([*noise, main()])))
    assert [each.name for each in found.frames] == ["main"]


def test_our_own_threads_and_frames_are_left_out() -> None:
    ours = thread([frame("beat", f"{SITE}/runwatch/sdk/collect.py"),
                   frame("Thread.run", f"{LIB}/threading.py"),
                   frame("_bootstrap", f"{LIB}/threading.py")], "Thread-1")  # fmt: skip
    control = thread([frame("serve")], "runwatch-control")
    steps = thread([*native("recv"), frame("steps", f"{SITE}/runwatch/sdk/step.py", 9), main()])
    (found,) = threads_of(stacks(ours, control, steps))
    assert [each.name for each in found.frames] == ["recv", "main"]


def test_a_users_folder_may_be_called_runwatch() -> None:
    (found,) = threads_of(stacks(thread([frame("f", "/home/user/runwatch/train.py"), main()])))
    assert len(found.frames) == 2


def test_the_main_thread_is_found_without_being_told() -> None:
    started = [frame("work"), frame("_bootstrap", f"{LIB}/threading.py")]
    other, first = thread(started, "a"), thread([frame("loop"), frame("<module>")], "b")
    found = main_thread(threads_of(stacks(other, first)))
    assert found is not None and found.name == "b"
    assert main_thread([]) is None


def test_code_that_is_installed_is_the_users_where_nothing_else_is() -> None:
    frames = [frame("all_reduce", C10D), frame("fit", f"{SITE}/my_trainer/loop.py", 8)]
    (found,) = threads_of(stacks(thread(frames)))
    where = users_frame(found.frames)
    assert where is not None and where.place == "loop.py:8"


@pytest.mark.parametrize("cause", ["loader", "worker", "lock", "skip", "order", "ddp_loader"])
def test_both_ways_of_looking_give_the_same_signature(cause: str) -> None:
    for number, seen in recorded(cause).items():
        asked = recorded(cause, "asked")[number]
        first, second = (main_thread(threads_of(r.rounds[-1])) for r in (seen, asked))
        assert first is not None and second is not None
        assert signature(first) == signature(second)
