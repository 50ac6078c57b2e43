"""The examples of cloud-tpu-diagnostics' document, under the drop-in.

`EXAMPLES` states them once more in our own words; where the document itself lies beside the
repository, its text is what runs, and both must be the same program.
"""

from __future__ import annotations

import ast
import re
import signal
import subprocess
from pathlib import Path

import pytest

from runwatch.exports import cloud_logging
from runwatch.record.stacks import Stacks
from tests.integration.sdk_programs import run_program
from tests.integration.standins import StandIns
from tests.seeds import document, filled_in, read, with_document

SEED = "004"
DOCUMENT = document(SEED)
EXAMPLES = [
    "pip install cloud-tpu-diagnostics",
    """
from cloud_tpu_diagnostics import diagnostic
from cloud_tpu_diagnostics.configuration import debug_configuration
from cloud_tpu_diagnostics.configuration import diagnostic_configuration
from cloud_tpu_diagnostics.configuration import stack_trace_configuration
""",
    "stack_trace_config = stack_trace_configuration.StackTraceConfig(collect_stack_trace=False)",
    """
stack_trace_config = stack_trace_configuration.StackTraceConfig(
    collect_stack_trace=True, stack_trace_to_cloud=False)
""",
    """
stack_trace_config = stack_trace_configuration.StackTraceConfig(
    collect_stack_trace=True, stack_trace_to_cloud=True)
""",
    """
logName="projects/<project_name>/logs/tpu.googleapis.com%2Fruntime_monitor"
jsonPayload.verb="stacktraceanalyzer"
""",
    """
stack_trace_config = stack_trace_configuration.StackTraceConfig(
    collect_stack_trace=True, stack_trace_to_cloud=True, stack_trace_interval_seconds=300)
""",
    "debug_config = debug_configuration.DebugConfig(stack_trace_config=stack_trace_config)",
    "diagnostic_config = diagnostic_configuration.DiagnosticConfig(debug_config=debug_config)",
    """
with diagnostic.diagnose(diagnostic_config):
    run_job(...)
""",
]
WRITTEN = [block.text for block in read(DOCUMENT)] if DOCUMENT is not None else EXAMPLES
INSTALL, IMPORTS, NOTHING, CONSOLE, CLOUD, QUERY, EVERY_FIVE_MINUTES, DEBUG, DIAGNOSTIC, JOB = (
    WRITTEN
)
LINE = "INFO: Not a crash. cloud-tpu-diagnostics emits a stack trace snapshot every {} seconds.\n"

# What the document leaves to the reader: the job.  This one asks for a snapshot as people do.
OWN = """
import glob, os, signal, sys
def run_job(something):
    if {snapshot}:
        signal.raise_signal(signal.SIGUSR1)
    for file in glob.glob(os.environ["RUNWATCH_STACKS_DIR"] + "/*"):
        print(open(file).read())
"""


@with_document(SEED)
def test_the_document_says_what_is_stated_here() -> None:
    def same(text: str) -> str:
        try:
            return ast.dump(ast.parse(text))
        except SyntaxError:  # a command, a query
            return " ".join(text.split())

    assert [same(text) for text in WRITTEN] == [same(text) for text in EXAMPLES]


def run(tmp_path: Path, config: str, *, snapshot: bool = True) -> tuple[str, str]:
    program = "\n".join(
        [OWN.format(snapshot=snapshot), IMPORTS, config, DEBUG, DIAGNOSTIC, JOB, "print('end')"]
    )
    done = run_program(program, tmp_path, RUNWATCH_STACKS_DIR=str(tmp_path / "debugging"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("end\n")
    return done.stdout, done.stderr


def test_1_nothing_is_collected(tmp_path: Path) -> None:
    assert run(tmp_path, NOTHING, snapshot=False) == ("end\n", "")
    assert not (tmp_path / "debugging").exists()


def test_2_on_the_console(tmp_path: Path) -> None:
    out, err = run(tmp_path, CONSOLE)
    assert out == "end\n"
    assert re.match(
        r'Stack \(most recent call first\):\n  File "<string>", line \d+ in run_job', err
    )
    assert not (tmp_path / "debugging").exists()


@pytest.mark.parametrize(
    ("config", "seconds"), [(CLOUD, 600), (EVERY_FIVE_MINUTES, 300)], ids=["usual", "given"]
)
def test_3_in_a_file(config: str, seconds: int, tmp_path: Path) -> None:
    out, err = run(tmp_path, config)
    assert err == ""
    stack = 'Stack (most recent call first):\n  File "<string>", line '
    assert LINE.format(seconds) + stack in out


def test_what_is_uploaded_is_what_the_query_finds() -> None:
    asked = dict(re.findall(r'^([\w.]+)="(.*)"$', filled_in(QUERY, {"project_name": "p"}), re.M))
    stacks = Stacks(pid=1, time_ns=5, how="watchdog", threads=(), rank=0, host="h")
    body = cloud_logging.request("p", [cloud_logging.entry(stacks)])
    (entry,) = body["entries"]
    assert asked == {"logName": body["logName"], "jsonPayload.verb": entry["jsonPayload"]["verb"]}


def test_the_command_that_installs_it(tmp_path: Path) -> None:
    """pip is a stand-in: what it would install is what is tried here."""
    standins = StandIns(tmp_path, "pip")
    subprocess.run(["bash", "-e", "-c", INSTALL], env={"PATH": f"{standins.bin}:/usr/bin:/bin"},
                   check=True)  # fmt: skip
    assert standins.calls("pip") == [["install", "cloud-tpu-diagnostics"]]


def test_a_fault_is_told_where_the_example_says(tmp_path: Path) -> None:
    """The document's first sentence about it: a fault leaves the Python stack."""
    program = [IMPORTS, CONSOLE, DEBUG, DIAGNOSTIC, JOB]
    own = "import os\ndef run_job(something):\n    os.abort()"
    done = run_program("\n".join([own, *program]), tmp_path)
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr and "in run_job" in done.stderr
