"""Every command line and example of xprofiler's document, as a user types them, in bash.

gcloud, kubectl, pip and python3 are stand-ins that write down how they are called; xprofiler is
the drop-in's.  `COMMANDS` states the command lines once more; where the document itself lies beside
the repository, its text is what runs, and both must say the same.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.processes import free_port
from tests.integration.sdk_programs import ROOT, SOURCE, run_program
from tests.integration.standins import StandIns
from tests.seeds import document, filled_in, read, with_document

SEED = "000"
DOCUMENT = document(SEED)
PLACES = {
    "some zone": "us-central1-a", "zone": "us-central1-a", "region": "us-central1",
    "some-bucket": "bucket", "some_bucket": "bucket", "bucket-name": "bucket",
    "some-run": "run", "some_run": "run", "run-name": "run", "session_id": "s",
    "project-number": "1", "project_id": "p", "cluster_name": "c", "id": "abc", "uuid": "u",
}  # fmt: skip
VM = "xprof-8187640b-e612-4c47-b4df-59a7fc86b253"
RUN = "gs://bucket/run"
HOSTS = "-n {} -d 2000 # duration in ms"
# One list for each block that has commands; the variables of earlier ones are those of the shell.
COMMANDS = [
    ["gcloud init", "gcloud auth login"],
    [
        "python3 -m venv venv",
        "source venv/bin/activate",
        "pip install cloud-diagnostics-xprof",
        "pip show cloud-diagnostics-xprof",
    ],
    [
        'ZONE="us-central1-a"',
        f'GCS_PATH="{RUN}/tensorboard"',
        "xprofiler create -z $ZONE -l $GCS_PATH",
    ],
    [f"xprofiler create -z us-central1-a -l {RUN}/tensorboard"],
    ["xprofiler connect -z $ZONE -l $GCS_PATH -m ssh"],
    ["ZONE=us-central1-a", "xprofiler list -z $ZONE"],
    ["xprofiler list -z $ZONE -l $GCS_PATH"],
    [
        f"xprofiler delete -z us-central1-b -l {RUN}/tensorboard",
        f'VM_NAME="{VM}"',
        "xprofiler delete -z $ZONE --vm-name $VM_NAME",
    ],
    [
        f"xprofiler capture -z us-central1-a -l {RUN} -f jax "
        + HOSTS.format("vm_name1 vm_name2 vm_name3")
    ],
    ["gcloud container clusters get-credentials c --region=us-central1"],
    ["kubectl config current-context"],
    ["kubectl get pods -o wide| awk '{print $1\"\\t\\t\"$7}'"],
    [
        f"xprofiler capture -z us-central1-a -o gke -l {RUN} -f jax "
        + HOSTS.format("pod_1 pod_2 pod_3")
    ],
]
USAGE = {
    "create": "[--help] --log-directory GS_PATH --zone ZONE_NAME [--vm-name VM_NAME] "
    "[--machine-type MACHINE_TYPE] [--verbose]",
    "list": "[--help] [--zones ZONE_NAME [ZONE_NAME ...]] "
    "[--log-directory GS_PATH [GS_PATH ...]] [--filter FILTER_NAME [FILTER_NAME ...]] [--verbose]",
    "delete": "[--help] --zone ZONE_NAME [--log-directory GS_PATH [GS_PATH ...]] "
    "[--vm-name VM_NAME [VM_NAME ...]] [--verbose]",
    "capture": "[--help] --log-directory GS_PATH --zone ZONE_NAME --hosts HOST_NAME "
    "[HOST_NAME ...] --framework FRAMEWORK [--orchestrator ORCHESTRATOR] [--duration DURATION] "
    "[--port LOCAL_PORT] [--verbose]",
    "connect": "[--help] --log-directory GS_PATH --zone ZONE_NAME [--mode MODE] "
    "[--port LOCAL_PORT] [--host-port HOST_PORT] [--disconnect] [--verbose]",
}
INLINE = [
    "xprofiler --help", "xprofiler -h", "xprofiler list -h", "xprofiler create --help",
    "xprofiler list --help", "xprofiler delete --help", "xprofiler capture --help",
    "xprofiler connect --help",
]  # fmt: skip
PROGRAMS = [
    """
import jax
jax.profiler.start_server(9012)
import torch_xla.debug.profiler as xp
server = xp.start_server(9012)
import tensorflow.compat.v2 as tf2
tf2.profiler.experimental.server.start(9012)
""",
    """
jax.profiler.start_trace("gs://<some_bucket>/<some_run>")
jax.profiler.stop_trace()
xp.trace_detached(f"localhost:{9012}", "gs://<some_bucket>/<some_run>", duration_ms=2000)
for step, (input, label) in enumerate(loader):
    with xp.StepTrace('train_step', step_num=step):
        # code to trace
with xp.Trace('fwd_context'):
    # code to trace
tf.profiler.experimental.start("gs://<some_bucket>/<some_run>")
for step in range(num_steps):
  with tf.profiler.experimental.Trace("Train", step_num=step):
    train_fn()
tf.profiler.experimental.stop()
""",
]


# ── from the document ──────────────────────────────────────────────────────────────────────────

_COMMAND = re.compile(
    r"(?:\$ )?((?:gcloud|pip|python3|source|kubectl) .*|[A-Z_]+=\S.*"
    r"|xprofiler (?:create|list|delete|capture|connect) .*)"
)


def commands_of(block: str) -> list[str]:
    """Its command lines, without the output that it shows below them."""
    joined = re.sub(r" \\ *(#.*)?\n", " ", filled_in(block, PLACES))
    found = (_COMMAND.fullmatch(line) for line in joined.splitlines())
    # A comment after a backslash, as the document has it, ends the line in every shell.
    return [re.sub(r"\\ #.*?(?= -)", "", match[1]) for match in found if match]


def usages_of(block: str) -> dict[str, str]:
    match = re.fullmatch(r"xprofiler (\w+)\n((?:  .*\n)+)", block)
    return {match[1]: " ".join(match[2].split())} if match else {}


if DOCUMENT is None:
    commands, usages, inline, programs = COMMANDS, USAGE, INLINE, PROGRAMS
else:
    found = [block.text for block in read(DOCUMENT)]
    commands = [lines for block in found if (lines := commands_of(block))]
    usages = {verb: flags for block in found for verb, flags in usages_of(block).items()}
    inline = list(dict.fromkeys(re.findall(r"`(xprofiler (?:\w+ )?--?h(?:elp)?)`", DOCUMENT)))
    programs = [block for block in found if "import jax" in block or "start_trace" in block]


@with_document(SEED)
def test_the_document_says_what_is_stated_here() -> None:
    def words(lines: list[str]) -> list[list[str]]:
        return [shlex.split(line) for line in lines]

    assert [words(lines) for lines in commands] == [words(lines) for lines in COMMANDS]
    assert usages == USAGE
    assert sorted(inline) == sorted(INLINE)
    stated = [ast.dump(ast.parse(runnable(text))) for text in PROGRAMS]
    assert [ast.dump(ast.parse(runnable(text))) for text in programs] == stated
    # Nothing else in it is a command: all that begins like one is in one of the lists.
    assert DOCUMENT is not None
    said = re.findall(r"^(?:\$ )?xprofiler (?!instance).*", DOCUMENT, re.MULTILINE)
    run = sum(line.startswith("xprofiler ") for lines in commands for line in lines)
    assert len(said) == run + len(usages)


def runnable(program: str) -> str:
    """With a line of code where the reader's own belongs."""
    return re.sub(r"# code to trace$", "pass", program, flags=re.MULTILINE)


# ── the commands ───────────────────────────────────────────────────────────────────────────────


def machine(name: str, zone: str) -> dict[str, object]:
    return {
        "name": name, "zone": f"https://compute/zones/{zone}", "labels": {"tb_backend_id": "abc"},
        "metadata": {"items": [f"{RUN}/tensorboard"]},
    }  # fmt: skip


READY = {
    "startup_script_begin_ts": "1", "tb_launched_ts": "2", "tb_attempts_count": "3",
    "tb_backend_id": "4ab",
}  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> tuple[StandIns, Path]:
    """A directory with an environment in it, and the stand-ins."""
    root = tmp_path / "shell"
    standins = StandIns(root / "standins", "gcloud", "kubectl", "pip", "python3")
    standins.rule("gcloud", "instances", "list", out="[]", times=1)
    machines = [machine(VM, "us-central1-a"), machine("xprof-other", "us-central1-a")]
    standins.rule("gcloud", "instances", "list", out=json.dumps(machines))
    standins.rule("gcloud", "storage", "cat", out=json.dumps(READY))
    standins.rule("kubectl", "get", "pods", out="NAME R S T A IP NODE\npod_1 1 2 3 4 5 node-1\n")
    standins.rule("kubectl", "current-context", out="gke_p_us-central1_c\n")
    xprofiler = standins.bin / "xprofiler"
    # Who types answers each question; what one command does not read is not for the next.
    answers = "printf 'y\\ny\\ny\\n'"
    python = shlex.quote(sys.executable)
    xprofiler.write_text(f'#!/bin/sh\n{answers} | {python} -m xprofiler "$@"\n')
    xprofiler.chmod(0o755)
    (root / "venv/bin").mkdir(parents=True)
    (root / "venv/bin/activate").touch()
    return standins, root


def typed(shell: tuple[StandIns, Path], lines: list[str], code: int = 0) -> str:
    """What is printed, on standard error if it fails."""
    standins, root = shell
    environment = {
        "PATH": f"{standins.bin}:/usr/bin:/bin", "HOME": str(root),
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT / 'dropin'}", "XPROFILER_POLL_SECONDS": "0.02",
        "RUNWATCH_DIR": str(root / "runwatch"), "RUNWATCH_AGENT": "off",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "\n".join(lines)], cwd=root, env=environment,
        stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == code, (lines, done.stdout, done.stderr)
    return done.stderr if code else done.stdout


def test_every_command_line(shell: tuple[StandIns, Path]) -> None:
    standins, _ = shell
    # What a block says is said for those below it: one shell.
    out = typed(shell, [line for lines in commands for line in lines])
    url = "https://4ab-dot-us-central1.notebooks.googleusercontent.com"
    assert out.count(f"Instance for {RUN}/tensorboard has been created.") == 2
    assert out.count(url) == 2
    assert f"Instance for {RUN}/tensorboard already exists." in out
    assert "(y/n)" in out
    assert "URL: http://localhost:6006" in out
    assert out.count("Log_Directory") == 5  # already exists, twice listed, twice deleted
    assert f"Deleting VM `{VM}`" in out
    for host in ("vm_name1", "vm_name2", "vm_name3", "pod_1", "pod_2", "pod_3"):
        assert f"Starting profile capture on host {host}." in out
    saved = rf"^Profile saved to {RUN}/tensorboard and session id is session_\d{{4}}(_\d\d){{5}}\.$"
    assert len(re.findall(saved, out, re.MULTILINE)) == 6
    assert "pod_1\t\tnode-1" in out and "gke_p_us-central1_c" in out

    gcloud = standins.calls("gcloud")
    assert gcloud[:2] == [["init"], ["auth", "login"]]
    assert len(standins.calls("gcloud", "instances", "create")) == 2
    tunnel = f"-f -N -M -S /tmp/ssh_mux_socket_{VM} -L 6006:localhost:6006"
    assert standins.calls("gcloud", "compute", "ssh", VM)[0][3] == f"--ssh-flag={tunnel}"
    deleted = standins.calls("gcloud", "instances", "delete")
    assert [words[4:] for words in deleted] == [
        ["--zone=us-central1-b", VM, "xprof-other"], ["--zone=us-central1-a", VM],
    ]  # fmt: skip
    assert len(standins.calls("gcloud", "tpu-vm", "ssh", f'"{RUN}/tensorboard"')) == 3
    assert len(standins.calls("kubectl", "exec", f'"{RUN}/tensorboard"')) == 3
    assert standins.calls("pip") == [
        ["install", "cloud-diagnostics-xprof"], ["show", "cloud-diagnostics-xprof"],
    ]  # fmt: skip
    assert standins.calls("python3") == [["-m", "venv", "venv"]]


def test_every_flag_of_the_usages_and_every_help(shell: tuple[StandIns, Path]) -> None:
    shown = {line: typed(shell, [line]) for line in inline}
    assert {text.split()[0] for text in shown.values()} == {"usage:"}
    assert shown["xprofiler --help"] == shown["xprofiler -h"]
    for verb, flags in usages.items():
        text = shown[f"xprofiler {verb} --help"]
        for flag, name, more in re.findall(r"(--[\w-]+) ?([A-Z_]+)?( \[[A-Z_]+ \.\.\.\])?", flags):
            known = re.search(rf"{flag}(?:[ ,].*)?$", text, re.MULTILINE)
            assert known, (verb, flag)
            if name and not re.search(rf"{flag} \{{", text):  # one of several words
                assert re.search(rf"{flag} {name}\b" if not more else rf"{flag} {name} \[", text), (
                    verb, flag, name, text,
                )  # fmt: skip


def test_paths_that_are_proper_and_that_are_not(shell: tuple[StandIns, Path]) -> None:
    """Those of its examples: with a slash at the end or without, without gs://, too long."""
    listed = "xprofiler list -z us-central1-a -l {}"
    for proper in ("gs://my-bucket/main_directory/sub-a/sub-b/",
                   "gs://my_other_bucket/main_directory/sub-1/sub-2"):  # fmt: skip
        typed(shell, [listed.format(proper), f"xprofiler create -z us-central1-a -l {proper}"])
    improper = "my_other_bucket/main_directory/sub-1/sub-2"
    failed = typed(shell, [f"xprofiler create -z us-central1-a -l {improper}"], code=1)
    assert f"Log directory {improper} does not exist." in failed and "gs://" in failed


# ── the programs ───────────────────────────────────────────────────────────────────────────────

OTHERS = {
    "torch_xla/__init__.py": "",
    "torch_xla/debug/__init__.py": "",
    "torch_xla/debug/profiler.py": """
from contextlib import nullcontext
def start_server(port): return port
def trace_detached(address, directory, duration_ms): print("traced", duration_ms)
def StepTrace(name, step_num): return nullcontext(print(name, step_num))
def Trace(name): return nullcontext(print(name))
""",
    "tensorflow/__init__.py": "from tensorflow.compat.v2 import profiler",
    "tensorflow/compat/__init__.py": "",
    "tensorflow/compat/v2.py": """
from contextlib import nullcontext
class profiler:
    class experimental:
        class server:
            def start(port): return port
        def start(directory): print("begun")
        def stop(): print("ended")
        def Trace(name, step_num): return nullcontext(print(name, step_num))
""",
}
OWN = """
import tensorflow as tf
loader, num_steps = [("x", "y")], 2
def train_fn(): pass
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_the_programs(tmp_path: Path) -> None:
    """JAX is real, torch_xla and TensorFlow are stand-ins; the bucket is a directory, the port is a
    free one, and `# code to trace` is a line of code."""
    for name, text in OTHERS.items():
        (tmp_path / "others" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "others" / name).write_text(text)
    text = runnable(f"{programs[0]}\n{OWN}\n{programs[1]}")
    text = text.replace("gs://<some_bucket>/<some_run>", str(tmp_path / "run"))
    text = text.replace("9012", str(free_port()))
    path = os.pathsep.join(map(str, (SOURCE, ROOT / "dropin", tmp_path / "others")))
    done = run_program(text, tmp_path / "runs", PYTHONPATH=path, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "traced 2000", "train_step 0", "fwd_context", "begun", "Train 0", "Train 1", "ended",
    ]  # fmt: skip
    assert len(list((tmp_path / "run/plugins/profile").glob("*/*.xplane.pb"))) == 1
