"""Programs for cloud-tpu-diagnostics, in processes that know only the drop-in's names."""

from __future__ import annotations

from pathlib import Path

from tests.integration.sdk_programs import run_program

LINE = "INFO: Not a crash. cloud-tpu-diagnostics emits a stack trace snapshot every {} seconds."
# Recorded from cloud-tpu-diagnostics 0.1.5.
SURFACE = """\
diagnostic.diagnose ['config']
src.diagnose.diagnose ['config']
src.debug.start_debugging ['debug_config']
src.debug.stop_debugging ['debug_config']
src.debug.send_user_signal ['stack_trace_interval_seconds']
src.debug.enable_stack_trace_dumping ['stack_trace_config']
src.debug.disable_stack_trace_dumping ['stack_trace_config']
src.diagnose.start_debugging ['debug_config']
src.diagnose.stop_debugging ['debug_config']
src.stack_trace.enable_stack_trace_dumping ['stack_trace_config']
src.stack_trace.disable_stack_trace_dumping ['stack_trace_config']
src.stack_trace.user_signal_handler_wrapper ['file_descriptor', 'interval']
DebugConfig {'stack_trace_config': None}
DiagnosticConfig {'debug_config': None}
StackTraceConfig {'collect_stack_trace': False, 'stack_trace_to_cloud': False, \
'stack_trace_interval_seconds': 600}
False False 600 /tmp/debugging/
True True True
"""


def test_every_name_of_the_original(tmp_path: Path) -> None:
    done = run_program(
        """
        import dataclasses, inspect
        from importlib import import_module
        import cloud_tpu_diagnostics
        from cloud_tpu_diagnostics import configuration, diagnostic
        from cloud_tpu_diagnostics.configuration import debug_configuration
        from cloud_tpu_diagnostics.configuration import diagnostic_configuration
        from cloud_tpu_diagnostics.configuration import stack_trace_configuration
        from cloud_tpu_diagnostics.src.util import default
        def show(path):
            module, name = path.rsplit(".", 1)
            function = getattr(import_module("cloud_tpu_diagnostics." + module), name)
            print(path, list(inspect.signature(function).parameters))
        for path in ("diagnostic.diagnose", "src.diagnose.diagnose", "src.debug.start_debugging",
                     "src.debug.stop_debugging", "src.debug.send_user_signal",
                     "src.debug.enable_stack_trace_dumping",
                     "src.debug.disable_stack_trace_dumping",
                     "src.diagnose.start_debugging", "src.diagnose.stop_debugging",
                     "src.stack_trace.enable_stack_trace_dumping",
                     "src.stack_trace.disable_stack_trace_dumping",
                     "src.stack_trace.user_signal_handler_wrapper"):
            show(path)
        for kind in (debug_configuration.DebugConfig, diagnostic_configuration.DiagnosticConfig,
                     stack_trace_configuration.StackTraceConfig):
            print(kind.__name__, dataclasses.asdict(kind()))
        print(default.COLLECT_STACK_TRACE_DEFAULT, default.STACK_TRACE_TO_CLOUD_DEFAULT,
              default.STACK_TRACE_INTERVAL_SECONDS_DEFAULT, default.STACK_TRACE_DIR_DEFAULT)
        from cloud_tpu_diagnostics.src.config.stack_trace_configuration import StackTraceConfig
        import runwatch.compat.tpu_diagnostics.configuration.stack_trace_configuration as ours
        import runwatch.compat.tpu_diagnostics.diagnostic
        print(StackTraceConfig is stack_trace_configuration.StackTraceConfig,
              StackTraceConfig is ours.StackTraceConfig,
              diagnostic.diagnose is runwatch.compat.tpu_diagnostics.diagnostic.diagnose)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == SURFACE


def test_start_and_stop_without_a_block(tmp_path: Path) -> None:
    done = run_program(
        """
        import faulthandler, glob, os, signal, tempfile, threading, time
        from cloud_tpu_diagnostics.configuration.debug_configuration import DebugConfig
        from cloud_tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig
        from cloud_tpu_diagnostics.src.debug import (
            send_user_signal, start_debugging, stop_debugging)
        from cloud_tpu_diagnostics.src.stack_trace import (
            disable_stack_trace_dumping, enable_stack_trace_dumping, user_signal_handler_wrapper)
        def state():
            while not faulthandler.is_enabled() and threading.active_count() > 1:
                time.sleep(0.005)  # ends when it is not collecting
            return faulthandler.is_enabled(), threading.active_count()
        config = DebugConfig(StackTraceConfig(True, True))
        start_debugging(config); print(state())
        signaller = threading.Thread(target=send_user_signal, args=(0.01,))
        signaller.start()
        (file,) = glob.glob(os.environ["RUNWATCH_STACKS_DIR"] + "/*")
        snapshot = ("snapshot every 600 seconds.\\nStack (most recent call first):\\n"
                    '  File "<string>", line ')
        while open(file).read().count(snapshot) < 2:
            time.sleep(0.005)
        stop_debugging(DebugConfig(StackTraceConfig(False))); print(state()[0])
        stop_debugging(config); signaller.join(); print(state())
        enable_stack_trace_dumping(StackTraceConfig(stack_trace_to_cloud=True)); print(state())
        disable_stack_trace_dumping(StackTraceConfig()); print(state())
        disable_stack_trace_dumping(StackTraceConfig()); print(state())
        for mode in ("r+", "rb+"):
            with tempfile.NamedTemporaryFile(mode) as written:
                user_signal_handler_wrapper(written, 30)(signal.SIGUSR1, None)
                lines = open(written.name).read().splitlines()
                print(lines[0], "in <module>" in lines[-1])
        """,
        tmp_path,
        RUNWATCH_STACKS_DIR=str(tmp_path / "debugging"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "(True, 2)", "True", "(False, 1)", "(True, 2)", "(False, 1)", "(False, 1)",
        f"{LINE.format(30)} True", f"{LINE.format(30)} True",
    ]  # fmt: skip


def test_a_signal_for_the_program_s_own_handler(tmp_path: Path) -> None:
    done = run_program(
        """
        import signal
        from cloud_tpu_diagnostics.src.debug import send_user_signal
        send_user_signal(0.01)  # nobody would take it: it would kill the program
        class Mine(Exception): pass
        def mine(number, frame): raise Mine
        signal.signal(signal.SIGUSR1, mine)
        try:
            send_user_signal(0.01)
        except Mine:
            print("received")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "received\n", "")


def test_a_crash_is_not_called_none(tmp_path: Path) -> None:
    """In a file the line is there before the first dump that a signal may ask for."""
    done = run_program(
        """
        import os
        from cloud_tpu_diagnostics import diagnostic
        from cloud_tpu_diagnostics.configuration.debug_configuration import DebugConfig
        from cloud_tpu_diagnostics.configuration.diagnostic_configuration import DiagnosticConfig
        from cloud_tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig
        with diagnostic.diagnose(DiagnosticConfig(DebugConfig(StackTraceConfig(True, True)))):
            os.abort()
        """,
        tmp_path,
        RUNWATCH_STACKS_DIR=str(tmp_path / "debugging"),
    )
    (file,) = (tmp_path / "debugging").iterdir()
    opened, unless, line, fatal, *_ = file.read_text().splitlines()
    assert (done.returncode, line) == (-6, LINE.format(600))
    assert unless.startswith("# ") and fatal == "Fatal Python error: Aborted"
    assert '"Fatal Python error"' in unless and opened.startswith("# opened ")
