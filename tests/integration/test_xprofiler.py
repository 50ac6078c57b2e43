"""The xprofiler command: gcloud, kubectl and ssh are stand-ins, everything on this machine is real.

`test_e1_NN` are the checks that a drop-in has to pass.
"""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from xprofiler.command import main
from xprofiler.mltrace import main as mltrace_main

from runwatch.capture.tracing.trace_checks import fields
from runwatch.journal.liveness import start_ticks
from runwatch.testing import until
from tests import tokens
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium
from tests.integration.processes import free_port
from tests.integration.standins import StandIns

COMMANDS = ("capture", "connect", "create", "delete", "list", "register")
FLAGS = {
    "create": "--log-directory,-l --zone,-z --vm-name,-n --machine-type,-m --verbose,-v "
    "--auto-delete-on-failure-off --skip-creation-if-exists --gke",
    "list": "--zones,-z --log-directory,-l --vm-name,-n --filter,-f --gke --verbose,-v",
    "delete": "--zone,-z --log-directory,-l --vm-name,-n --gke --quiet,-q --verbose,-v",
    "capture": "--log-directory,-l --zone,-z --hosts,-n --framework,-f --orchestrator,-o --port,-p "
    "--duration,-d --use-ssh-proxy,-u --non-tpu-vm --verbose,-v",
    "connect": "--log-directory,-l --zone,-z --mode,-m --port,-p --host-port --disconnect,-d "
    "--use-ssh-proxy,-u --verbose,-v",
    "register": "--log-directory,-l --region,-r --ml-run-name,-m --run-set,-s --project-id,-p "
    "--verbose,-v",
}
BASE = "(name:(xprof)) OR (labels.xprofiler_version:(*))"
FORMAT = (
    "--format=json(metadata.items.extract(xprofiler_log_directory),labels.xprofiler_log_directory,"
    "labels.tb_backend_id,name,zone)"
)
ZONE = "us-central1-a"
ZONE_URL = f"https://www.googleapis.com/compute/v1/projects/p/zones/{ZONE}"
DIRECTORY = "gs://bucket/run"


def machine(
    name: str, directory: str | None, backend: str = "abc", **labels: str
) -> dict[str, Any]:
    metadata = {"items": [directory]} if directory else {}
    known = {"tb_backend_id": backend} | labels
    return {"name": name, "zone": ZONE_URL, "metadata": metadata, "labels": known}


MACHINES = [
    machine("xprof-one", DIRECTORY),
    machine("xprof-two", "gs://bucket/other", "def"),
    machine("xprof-bare", None),
    machine("xprof-old", None, "ghi", xprofiler_log_directory="bucket--slash--old"),
]
OUTPUT = {
    "startup_script_begin_ts": "1", "tb_launched_ts": "2", "tb_attempts_count": "3",
    "tb_backend_id": "4ab",
}  # fmt: skip


class Done(NamedTuple):
    stdout: str
    stderr: str


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.standins = StandIns(root / "standins", "gcloud", "kubectl", "ssh")
        self.path = str(self.standins.bin)
        self.more: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "XPROFILER_"))
        }
        return kept | {
            "PATH": self.path, "HOME": str(self.root), "XPROFILER_HOME": str(self.root / "home"),
            "XPROFILER_POLL_SECONDS": "0.02", "RUNWATCH_DIR": str(self.root / "runwatch"),
            "RUNWATCH_AGENT": "off", **self.more,
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "xprofiler", *words], cwd=self.root, env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, code: int = 0, said: str = "") -> Done:
        """In this process: most of what is tried here is started many times."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            environment = self.environment
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO(said))
            try:
                ended = main(words)
            except SystemExit as left:  # argparse's way
                ended = left.code if isinstance(left.code, int) else 1
        return self._done(ended, out.getvalue(), err.getvalue(), code)

    def type(self, *words: str, code: int = 0, said: str = "") -> Done:
        """As a user does: a process of its own, which viewers outlive."""
        with self.begin(*words) as process:
            out, err = process.communicate(said, timeout=90)
        return self._done(process.returncode, out, err, code)

    @staticmethod
    def _done(ended: int, out: str, err: str, code: int) -> Done:
        assert "Traceback" not in err, err
        assert ended == code, (ended, out, err)
        return Done(out, err)

    def gcloud(self, *words: str) -> list[list[str]]:
        return self.standins.calls("gcloud", *words)

    def machines(self, *found: dict[str, Any]) -> None:
        out = json.dumps(found or MACHINES)
        self.standins.rule("gcloud", "instances", "list", "--format=json(", out=out)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def rows(text: str) -> list[list[str]]:
    """The table's cells, below its two lines of heading."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("Log_Directory"))
    assert lines[start].split() == ["Log_Directory", "URL", "Name", "Zone"]
    assert set(lines[start + 1]) <= {"-", " "}
    found = [line.split() for line in lines[start + 2 :]]
    return [cells for cells in found if len(cells) == 4]


# ── the command line ───────────────────────────────────────────────────────────────────────────


def test_e1_01_usage_and_flags(bench: Bench) -> None:
    usage = bench.run().stdout
    assert usage.startswith("usage: xprofiler")
    assert all(re.search(rf"^ +{name}\b", usage, re.MULTILINE) for name in COMMANDS)
    for name in COMMANDS:
        shown = bench.run(name, "-h").stdout
        for flag in FLAGS[name].split():
            pattern = r"( [A-Z_{}a-z,]+)?( \[.*\])?, ".join(map(re.escape, flag.split(",")))
            assert re.search(rf"^ +{pattern}\b", shown, re.MULTILINE), (name, flag, shown)


def test_e1_02_list_asks_once(bench: Bench) -> None:
    bench.machines()
    bench.run("list", "-z", "a", "b")
    assert bench.gcloud() == [
        ["compute", "instances", "list", "--zones=a,b", FORMAT, f"--filter={BASE}"]
    ]


def test_e1_03_list_filters(bench: Bench) -> None:
    bench.machines()
    bench.run("list", "-f", "x=1", "y=2")
    assert bench.gcloud()[0][-1] == f"--filter=({BASE}) AND (x=1 AND y=2)"


def test_e1_04_list_shows_a_table(bench: Bench) -> None:
    bench.machines()
    url = "https://{}-dot-us-central1.notebooks.googleusercontent.com"
    assert rows(bench.run("list").stdout) == [
        [DIRECTORY, url.format("abc"), "xprof-one", ZONE],
        ["gs://bucket/other", url.format("def"), "xprof-two", ZONE],
        ["gs://bucket/old", url.format("ghi"), "xprof-old", ZONE],
    ]


def test_e1_05_list_is_the_union(bench: Bench) -> None:
    bench.machines()

    def names(*words: str) -> list[str]:
        return [row[2] for row in rows(bench.run("list", *words).stdout)]

    assert names("-l", DIRECTORY, "-n", "xprof-two") == ["xprof-one", "xprof-two"]
    assert names("-l", f"{DIRECTORY}/") == names("-l", DIRECTORY) == ["xprof-one"]
    assert names("-l", "gs://bucket/old") == ["xprof-old"]


def test_e1_06_other_flags_go_to_the_command_underneath(bench: Bench) -> None:
    bench.machines()
    bench.run("list", "--limit=5")
    bench.run("list", "--limit", "5")
    said = bench.run("list", "stray", "--sort-by", "name", "zone", "--uri").stderr
    assert [call[-1] for call in bench.gcloud()[:2]] == ["--limit=5", "--limit=5"]
    assert bench.gcloud()[2][-2:] == ["--sort-by=name zone", "--uri"]
    assert "'stray' belongs to no flag" in said


# ── create ─────────────────────────────────────────────────────────────────────────────────────


def test_e1_07_create_needs_the_directory(bench: Bench) -> None:
    bench.standins.rule("gcloud", "buckets", "describe", err="ERROR: 404", code=1)
    done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, code=1)
    assert f"Log directory {DIRECTORY} does not exist." in done.stderr
    assert bench.gcloud() == [["storage", "buckets", "describe", "gs://bucket"]]
    for odd in ("gs://", "gs://bucket!/x", "gs://b/x'; rm -rf ~ #", "gs://b/$(id)"):
        bench.run("create", "-l", odd, "-z", ZONE, code=2)
    assert len(bench.gcloud()) == 1


def test_paths_with_capital_letters_are_kept(bench: Bench) -> None:
    bench.machines(machine("xprof-one", "gs://Bucket/Run-1/Sub"))
    bench.standins.rule("gcloud", "storage", "cat", out=json.dumps(OUTPUT))
    done = bench.run("create", "-l", "gs://Bucket/Run-1", "-z", ZONE)
    assert "Instance for gs://Bucket/Run-1 has been created." in done.stdout
    assert bench.gcloud("describe") == [["storage", "buckets", "describe", "gs://Bucket"]]
    assert bench.gcloud("create", ",xprofiler_log_directory=gs://Bucket/Run-1,")
    assert len(rows(bench.run("list", "-l", "gs://Bucket/Run-1/Sub").stdout)) == 1
    assert rows(bench.run("list", "-l", "gs://bucket/run-1/sub").stdout) == []
    words = ("capture", "-l", "gs://Bucket/Run-1", "-z", ZONE, "-f", "jax", "-n", "h1")
    assert "Profile saved to gs://Bucket/Run-1/tensorboard" in bench.run(*words).stdout


def test_e1_08_create_asks_before_a_second_one(bench: Bench) -> None:
    bench.machines()
    for said in ("n\n", "", "yes\n"):
        done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, said=said)
        assert f"Instance for {DIRECTORY} already exists." in done.stdout
        assert rows(done.stdout)[0][2] == "xprof-one"
        assert "(y/n)\n" in done.stdout
        assert done.stdout.endswith("Exiting...\n")
    done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, "--skip-creation-if-exists")
    assert "(y/n)" not in done.stdout
    assert not bench.gcloud("instances", "create")
    bench.standins.rule("gcloud", "storage", "cat", out=json.dumps(OUTPUT))
    assert "has been created" in bench.run("create", "-l", DIRECTORY, "-z", ZONE, said="Y\n").stdout
    assert len(bench.gcloud("instances", "create")) == 1


def test_e1_09_create_says_what_it_wants(bench: Bench) -> None:
    bench.standins.rule("gcloud", "storage", "cat", out=json.dumps(OUTPUT))
    bench.run("create", "-l", f"{DIRECTORY}/", "-z", ZONE)
    words = bench.gcloud("instances", "create")[0]
    assert re.fullmatch(r"xprof-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", words[3])
    assert words[4:11] == [
        "--machine-type", "c4-highmem-8", f"--zone={ZONE}", "--tags=default-allow-ssh",
        "--image-family=debian-12", "--image-project=debian-cloud", "--scopes=cloud-platform",
    ]  # fmt: skip
    assert words[11] == "--labels=xprofiler_version=0-1-1,tensorboard_plugin_profile=2-21-1"
    metadata = dict(part.split("=", 1) for part in words[12].removeprefix("--metadata=").split(","))
    assert set(metadata) == {
        "xprofiler_version", "xprofiler_log_directory", "startup-script",
        "tensorboard-plugin-profile",
    }  # fmt: skip
    assert metadata["xprofiler_log_directory"] == DIRECTORY
    assert f"gsutil cp startup_output.json '{DIRECTORY}/{words[3]}/'" in metadata["startup-script"]
    checked = subprocess.run(
        ["/bin/bash", "-n"], input=metadata["startup-script"], text=True, capture_output=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")

    bench.run("create", "-l", DIRECTORY, "-z", ZONE, "-n", "mine", "-m", "e2-small",
              "--tags=own", "--labels", "team=x", "--preemptible")  # fmt: skip
    words = bench.gcloud("instances", "create")[1]
    assert words[3:6] == ["mine", "--machine-type", "e2-small"]
    assert "--tags=own" in words and "--preemptible" in words
    assert [w for w in words if w.startswith("--labels")] == [
        "--labels=xprofiler_version=0-1-1,tensorboard_plugin_profile=2-21-1,team=x"
    ]


def test_e1_10_create_with_a_machine_type_that_the_zone_lacks(bench: Bench) -> None:
    wrong = "ERROR: Invalid value for field 'resource.machineType': 'x9'"
    bench.standins.rule("gcloud", "instances", "create", code=1, err=wrong)
    bench.standins.rule("gcloud", "machine-types", out="europe-west4-a\nus-east1-b\n")
    done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, "-m", "x9", code=1)
    assert "The machine type and zone do not match." in done.stderr
    assert "['europe-west4-a', 'us-east1-b']" in done.stderr
    assert bench.gcloud()[-1] == [
        "compute", "machine-types", "list", "--filter", "name='x9'", "--format", "value(zone)",
        "--limit=10",
    ]  # fmt: skip
    assert not bench.gcloud("instances", "delete")


def test_e1_11_create_cleans_up_what_does_not_start(bench: Bench) -> None:
    bench.more["XPROFILER_READY_SECONDS"] = "0.05"
    bench.standins.rule("gcloud", "storage", "cat", code=1, err="ERROR: 404")
    words = ("create", "-l", DIRECTORY, "-z", ZONE, "-n", "slow")
    done = bench.run(*words, "--auto-delete-on-failure-off", code=1)
    assert "slow is kept" in done.stderr
    assert not bench.gcloud("instances", "delete")
    done = bench.run(*words, code=1)
    assert "Unable to set up instance. Initiating cleanup." in done.stderr
    assert bench.gcloud("instances", "delete") == [
        ["compute", "instances", "delete", "--quiet", f"--zone={ZONE}", "slow"]
    ]


def test_e1_12_create_waits_until_it_answers(bench: Bench) -> None:
    bench.standins.rule("gcloud", "storage", "cat", code=1, err="ERROR: 404", times=2)
    bench.standins.rule("gcloud", "storage", "cat", out="{'half': ", times=1)
    bench.standins.rule("gcloud", "storage", "cat", out=json.dumps(OUTPUT))
    done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, "-n", "vm")
    cats = bench.gcloud("storage", "cat")
    assert cats == [["storage", "cat", f"{DIRECTORY}/vm/startup_output.json"]] * 4
    assert bench.gcloud()[-1] == [
        "compute", "instances", "add-labels", "vm",
        "--labels=startup_script_begin_ts=1,tb_launched_ts=2,tb_attempts_count=3,tb_backend_id=4ab",
        f"--zone={ZONE}",
    ]  # fmt: skip
    assert done.stdout.splitlines()[1:] == [
        "",
        f"Instance for {DIRECTORY} has been created.",
        "You can access it via the following,",
        "1. https://4ab-dot-us-central1.notebooks.googleusercontent.com",
        f"2. xprofiler connect -z {ZONE} -l {DIRECTORY} -m ssh",
        "Instance is hosted at vm VM.",
    ]


def test_a_viewer_that_never_came_up_is_deleted(bench: Bench) -> None:
    told = json.dumps(OUTPUT | {"tb_attempts_count": "19"})
    bench.standins.rule("gcloud", "storage", "cat", out=told)
    done = bench.run("create", "-l", DIRECTORY, "-z", ZONE, "-n", "vm", code=1)
    assert "Unable to start backend server." in done.stderr
    assert len(bench.gcloud("instances", "delete")) == 1


# ── delete ─────────────────────────────────────────────────────────────────────────────────────


def test_e1_13_delete_asks_for_each(bench: Bench) -> None:
    bench.machines()
    assert (
        "--log-directory (-l) or --vm-name (-n)" in bench.run("delete", "-z", ZONE, code=2).stderr
    )
    assert bench.gcloud() == []
    both = ("delete", "-z", ZONE, "-l", DIRECTORY, "gs://bucket/other", "gs://bucket/old")
    done = bench.run(*both, said="y\nn\nY\n")
    assert "Found 3 VM(s)/Pod(s) to delete." in done.stdout
    assert done.stdout.count("Enter y/n: ") == 3
    assert "Deleting VM `xprof-one`" in done.stdout
    assert "Keep VM `xprof-two`" in done.stdout
    delete = ["compute", "instances", "delete", "--quiet", f"--zone={ZONE}"]
    assert bench.gcloud("instances", "delete") == [[*delete, "xprof-one", "xprof-old"]]
    assert "No VM(s) to delete." in bench.run(*both).stdout
    assert "Enter y/n" not in bench.run(*both, "-q").stdout
    assert len(bench.gcloud("instances", "delete")) == 2
    assert "No VM(s)/Pod(s) to delete." in bench.run("delete", "-z", ZONE, "-n", "none").stdout


SERVICES = {
    "items": [
        {"metadata": {
            "name": f"{name}-agent-service",
            "labels": {"instance": name, "zone": ZONE, "role": "xprofiler-proxy-service"},
            "annotations": {"log-directory": directory, "proxy-url": f"https://{name}.example"},
        }}
        for name, directory in (("xprofiler-a", DIRECTORY), ("xprofiler-b", "gs://bucket/other"))
    ]
}  # fmt: skip


def test_e1_14_delete_in_a_cluster(bench: Bench) -> None:
    bench.standins.rule("kubectl", "get", "services", out=json.dumps(SERVICES))
    words = ("delete", "--gke", "-z", ZONE, "-l", DIRECTORY, "gs://bucket/other")
    bench.run(*words, said="n\ny\n")
    assert bench.standins.calls("kubectl") == [
        ["--namespace=xprofiler", "get", "services", "-l",
         f"role=xprofiler-proxy-service,zone in ({ZONE})", "-o", "json"],
        ["delete", "all", "--namespace=xprofiler", "-l", "instance=xprofiler-b"],
    ]  # fmt: skip
    assert bench.gcloud() == []


def test_instances_in_a_cluster(bench: Bench) -> None:
    bench.standins.rule("kubectl", "get", "services", out=json.dumps({"items": []}), times=1)
    bench.standins.rule("kubectl", "get", "services", out=json.dumps(SERVICES))
    bench.standins.rule("kubectl", "get", "service", "jsonpath", out="''", times=1)
    bench.standins.rule("kubectl", "get", "service", "jsonpath", out="'https://x.example'")
    done = bench.run("create", "--gke", "-l", DIRECTORY, "-z", ZONE, "--pod-port=9002")
    assert "https://x.example" in done.stdout
    applied = bench.standins.calls("kubectl", "apply")
    assert len(applied) == 1
    assert not Path(applied[0][-1]).exists()
    shown = rows(bench.run("list", "--gke", "-n", "xprofiler-a").stdout)
    assert shown == [[DIRECTORY, "https://xprofiler-a.example", "xprofiler-a", ZONE]]
    assert "instance in (xprofiler-a)" in bench.standins.calls("kubectl")[-1][4]
    assert bench.gcloud() == []


# ── capture ────────────────────────────────────────────────────────────────────────────────────

SESSION = r"\d{4}(?:_\d\d){5}"


def test_e1_15_capture_of_several_hosts_at_once(bench: Bench) -> None:
    bench.standins.rule("gcloud", "ssh", "h2", code=1, err="it broke")
    bench.standins.rule("gcloud", "ssh", together=2)
    words = ("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1", "h2", "h3")
    done = bench.run(*words, code=1)
    told = rf"^Profile saved to {DIRECTORY}/tensorboard and session id is (session_{SESSION})\.$"
    saved = re.findall(told, done.stdout, re.MULTILINE)
    assert len(saved) == 2
    for host in ("h1", "h2", "h3"):
        assert f"Starting profile capture on host {host}." in done.stdout
        [call] = bench.gcloud("tpu-vm", "ssh", f'"override_hostnames": "{host}"')
        assert f'"session_id": "{saved[0]}"' in call[-1]
        assert bench.gcloud("describe", host) == [
            ["compute", "tpus", "tpu-vm", "describe", host, "--zone", ZONE]
        ]
    assert "Failed to profile host h2" in done.stderr
    assert "it broke" in done.stderr


def test_e1_16_capture_jax(bench: Bench) -> None:
    bench.run("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1", "--session", "s")
    bench.run("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1", "--session", "s",
              "-p", "9", "-d", "77", "--non-tpu-vm", "-u", "--tunnel-through-iap")  # fmt: skip
    python = (
        "echo -e 'from xprof.convert import _pywrap_profiler_plugin as plugin; "
        'plugin.trace("h1:{}", "gs://bucket/run/tensorboard", "", True, {}, 3, '
        """{{"session_id": "session_s", "override_hostnames": "h1"}})' | python3"""
    )
    first, second = bench.gcloud("ssh")
    assert first == ["compute", "tpus", "tpu-vm", "ssh", "h1", "--zone", ZONE, "--worker=all",
                     "--command", python.format(9012, 2000)]  # fmt: skip
    assert second == [
        "compute", "ssh", "h1", "--zone", ZONE, "--command", python.format(9, 77),
        "--tunnel-through-iap", "--", "-o ProxyCommand corp-ssh-helper %h %p",
    ]  # fmt: skip
    bench.run("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1'$(id)", code=2)
    assert len(bench.gcloud("ssh")) == 2


def test_e1_17_capture_pytorch(bench: Bench) -> None:
    words = ("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "pytorch", "-n", "h1", "--session", "s")
    done = bench.run(*words, "--non-tpu-vm")
    saved = f"Profile saved to {DIRECTORY}/tensorboard and session id is session_s."
    assert saved in done.stdout
    calls = bench.gcloud("ssh")
    assert [call[:-1] for call in calls] == [
        ["compute", "ssh", "h1", "--zone", ZONE, "--command"]
    ] * 3
    assert calls[0][-1].startswith("wget https://raw.githubusercontent.com/pytorch/xla/")
    assert calls[1][-1] == (
        "python3 capture_profile.py --service_addr localhost:9012 --duration 2000 "
        "--logdir tmp/tensorboard/s"
    )
    assert calls[2][-1].endswith(f"{DIRECTORY}/tensorboard/plugins/profile/session_s/h1.xplane.pb")


@pytest.mark.parametrize("orchestrator", ["gce", "gke"])
def test_e1_18_capture_tensorflow_only_says_what_is_there(bench: Bench, orchestrator: str) -> None:
    words = ("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "tensorflow", "-n", "h1", "-o",
             orchestrator)  # fmt: skip
    bench.standins.rule("gcloud", "storage", "ls", code=1, err="ERROR: no objects", times=1)
    done = bench.run(*words, code=1)
    assert "Profile saved" not in done.stdout
    assert "h1.xplane.pb was not written" in done.stderr
    assert "Profile saved" in bench.run(*words).stdout


def test_e1_19_capture_in_a_cluster(bench: Bench) -> None:
    bench.run("capture", "-o", "gke", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "pod-1",
              "--session", "s")  # fmt: skip
    [call] = bench.standins.calls("kubectl")
    assert call[:5] == ["exec", "pod-1", "--", "bash", "-c"]
    assert '"pod-1:9012"' in call[5]
    assert bench.gcloud("describe", "pod-1") == []


def test_e1_20_hints(bench: Bench) -> None:
    words = ("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1")
    silent = "No trace event was collected because there were no responses from clients"
    bench.standins.rule("gcloud", "ssh", code=1, err=f"RuntimeError: {silent}.", times=1)
    bench.standins.rule("gcloud", "ssh", code=1, err="ssh: Connection timed out", times=1)
    assert "jax.profiler.start_server(9012)" in bench.run(*words, code=1).stderr
    assert "could not be reached" in bench.run(*words, code=1).stderr


# ── connect and register ───────────────────────────────────────────────────────────────────────


def test_e1_21_connect_opens_a_tunnel(bench: Bench) -> None:
    bench.machines()
    words = ("connect", "-l", DIRECTORY, "-z", ZONE)
    assert bench.run(*words).stdout.splitlines() == [
        "CONNECTING TO VM...", "Connected successfully!", "URL: http://localhost:6006",
    ]  # fmt: skip
    tunnel = "--ssh-flag=-f -N -M -S /tmp/ssh_mux_socket_xprof-one -L {}:localhost:{}"
    ssh = ["compute", "ssh", "xprof-one"]
    assert bench.gcloud("ssh")[0] == [*ssh, tunnel.format(6006, 6006), f"--zone={ZONE}"]
    assert "http://localhost:7007" in bench.run(*words, "-p", "7007", "--host-port", "80").stdout
    assert bench.gcloud("ssh")[1][3] == tunnel.format(7007, 80)
    assert "DISCONNECTING FROM VM..." in bench.run(*words, "-d").stdout
    leave = "--ssh-flag=-o ControlPath=/tmp/ssh_mux_socket_xprof-one -O exit"
    assert bench.gcloud("ssh")[2] == [*ssh, leave, f"--zone={ZONE}"]
    done = bench.run("connect", "-l", "gs://bucket/none", "-z", ZONE, code=1)
    assert "there is no instance for gs://bucket/none" in done.stderr


def test_a_tunnel_into_a_cluster(bench: Bench) -> None:
    bench.standins.rule("kubectl", "get", "services", out=json.dumps(SERVICES))
    bench.standins.rule("kubectl", "port-forward", "1:80", err="no such port", code=1)
    bench.standins.rule("kubectl", "port-forward", out="Forwarding from 127.0.0.1\n", hangs=True)
    words = ("connect", "-l", DIRECTORY, "-z", ZONE, "--backend", "gke")
    assert "no tunnel: no such port" in bench.run(*words, "-p", "1", code=1).stderr
    note = bench.root / "home" / "xprofiler-a.forward"
    assert "URL: http://localhost:6006\n" in bench.type(*words).stdout
    first = int(note.read_text().split()[0])
    assert "URL: http://localhost:7007\n" in bench.type(*words, "-p", "7007").stdout
    second = int(note.read_text().split()[0])
    until(lambda: start_ticks(first) is None)  # the second took its place
    assert start_ticks(second) is not None
    bench.run(*words, "-d")
    until(lambda: start_ticks(second) is None)
    assert "there is no tunnel to xprofiler-a" in bench.run(*words, "-d", code=1).stderr
    assert os.listdir(note.parent) == []
    ports = [call[-1] for call in bench.standins.calls("kubectl", "port-forward")]
    assert ports == ["1:80", "6006:80", "7007:80"]


class Registry(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, dict[str, Any], str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body, self.headers["Authorization"]))
        if body["displayName"] == "bad":
            self._reply(403, {"error": {"message": "you may not"}})
        else:
            self._reply(200, {"name": "projects/p/locations/r/operations/op-1"})

    def do_GET(self) -> None:
        known = self.path.endswith("/operations/op-1")
        target = {"metadata": {"target": "projects/p/locations/r/machineLearningRuns/run-9"}}
        self._reply(200 if known else 404, target if known else {"error": {"message": self.path}})

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    Registry.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_e1_22_register(bench: Bench, registry: str) -> None:
    bench.more["XPROFILER_API"] = registry
    bench.standins.rule("gcloud", "print-access-token", out="secret\n")
    words = ("register", "-l", DIRECTORY, "-r", "us-east1", "-s", "set", "-p", "proj", "-m")
    console = "https://console.cloud.google.com/cluster-director/diagnostics/details"
    assert (
        f"view the ML run at {console}/us-east1/run-9?project=proj"
        in bench.run(*words, "mine").stdout
    )
    path, body, token = Registry.asked[0]
    assert path == "/v1alpha/projects/proj/locations/us-east1/machineLearningRuns"
    assert body == {
        "displayName": "mine", "name": "mine", "runSet": "set",
        "artifacts": {"gcs_path": DIRECTORY}, "state": "STATE_COMPLETED",
    }  # fmt: skip
    assert token == "Bearer secret"
    assert "you may not" in bench.run(*words, "bad", code=1).stderr


# ── a run's timeline ───────────────────────────────────────────────────────────────────────────

TRAINING = """\
import runwatch
run = runwatch.init("timeline")
for step, _ in run.steps(range(3)):
    run.log(loss=1.0 / (step + 1))
    with run.span("evaluation"):
        run.log(note="all is well")
run.finish()
"""


def test_e1_23_a_run_as_a_trace(bench: Bench) -> None:
    for rank in range(2):
        bench.more |= {"RANK": str(rank), "WORLD_SIZE": "2", "RUNWATCH_RUN_ID": "timeline"}
        subprocess.run([sys.executable, "-c", TRAINING], env=bench.environment, check=True)
    out = bench.root / "trace.json"
    subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "export", "timeline", "--perfetto", "--metric",
         "loss", "--metric", "step_seconds", "-o", str(out)],
        env=bench.environment, check=True, capture_output=True,
    )  # fmt: skip
    events = json.loads(out.read_text())["traceEvents"]
    for rank in range(2):
        of_rank = [event for event in events if event["pid"] == rank]
        assert [e["name"] for e in of_rank if e["ph"] == "X" and e["cat"] == "step"] == [
            "step 0", "step 1", "step 2",
        ]  # fmt: skip
        assert sum(e["ph"] == "X" and e["cat"] == "evaluation" for e in of_rank) == 3
        counters = [e for e in of_rank if e["ph"] == "C"]
        assert sum(e["name"] == "step_seconds" for e in counters) == 3
    first = [event for event in events if event["pid"] == 0]
    losses = [e["args"]["value"] for e in first if e["ph"] == "C" and e["name"] == "loss"]
    assert losses == [1.0, 0.5, 1 / 3]
    assert sum(e["ph"] == "i" and e["name"] == "note: all is well" for e in first) == 3


PODS = 64
SAID = ("[E] BAD_ICI link 3 is down", "step 7 took 1.2 s", "saved checkpoint 5")


def log_entries(count: int) -> Iterator[str]:
    """JSON lines as `gcloud logging read` would give them, newest last."""
    for number in range(count):
        pod = number % PODS
        seconds, rest = divmod(number, 1000)
        labels = {
            "pod_name": f"job-slice-job-{pod // 16}-{pod % 16}-x7k2p",
            "container_name": "jax-tpu", "cluster_name": "c", "location": "us-central1",
        }  # fmt: skip
        said = {
            "timestamp": f"2026-11-15T12:{seconds // 60:02d}:{seconds % 60:02d}.{rest:03d}456789Z",
            "severity": ("ERROR", "INFO", "INFO")[number // PODS % 3],
            "textPayload": f"{SAID[number // PODS % 3]} #{number}",
            "resource": {"type": "k8s_container", "labels": labels},
        }
        yield json.dumps(said) + "\n"


def mltrace(bench: Bench, *words: str, module: str = "run_mltrace") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *words], cwd=bench.root, env=bench.environment,
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_e1_23_a_job_s_log_as_a_trace(bench: Bench) -> None:
    count = 100_000
    with (bench.root / "x.jsonl").open("w") as file:
        file.writelines(log_entries(count))
    code, out, err = mltrace(bench, "-f", "x.jsonl", "-j", "job", "-p", "proj")
    assert (code, err) == (0, "")
    assert "100000 lines of 64 workers: x.gz" in out
    assert {path.name for path in bench.root.glob("*x.*")} == {"x.jsonl", "x.gz", "x.html"}
    trace = json.loads(gzip.decompress((bench.root / "x.gz").read_bytes()))
    _has_all(trace["traceEvents"], count)
    assert trace["otherData"] == {"project": "proj", "job": "job", "lines": count, "tracks": 64}


def _has_all(events: list[dict[str, Any]], count: int) -> None:
    tracks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(tracks.values()) == sorted(
        ["Coordinator", *(f"Slice-Worker {n // 16}-{n % 16}" for n in range(1, PODS))]
    )
    sections = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    said = [(e["name"], sections[e["tid"]]) for e in events if e["ph"] == "i"]
    assert len(said) == count
    bad = {line for line, name in said if name == "BAD_ICI"}
    assert bad == {line for line, _ in said if line.startswith("[E] BAD_ICI")}
    assert len(bad) > count // 4


@pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER)
@pytest.mark.xdist_group("chromium")
def test_e1_23_the_page_needs_no_network(bench: Bench) -> None:
    (bench.root / "x.jsonl").write_text("".join(log_entries(PODS * 6)))
    assert mltrace(bench, "-f", "x.jsonl", "-j", "job", "-p", "proj")[0] == 0
    address = (bench.root / "x.html").as_uri()
    with Chromium() as browser, browser.open(address) as page:
        page.until("document.getElementById('said').textContent === '384 lines of 64 workers'")
        page.evaluate("document.getElementById('fold').click()")
        assert page.evaluate("rows.slice(0, 5).map(row => row.name)") == [
            "Coordinator", "BAD_ICI", "Other logs", "Checkpoint", "Slice-Worker 0-1",
        ]  # fmt: skip
        page.evaluate("box = get('find'); box.value = 'DOWN #63'; 0")
        page.evaluate("box.dispatchEvent(new Event('input'))")
        page.until("document.getElementById('said').textContent === '1 line of 64 workers'")
        page.evaluate("view.dispatchEvent(new KeyboardEvent('keydown', {key: 'n'})); 0")
        shown = page.evaluate("document.getElementById('detail').textContent")
        assert shown.startswith("[E] BAD_ICI link 3 is down #63\n")
        assert "job-slice-job-3-15-x7k2p" in shown
        drawn = "new Set(pen.getImageData(0, 0, canvas.width, canvas.height).data).size > 4"
        assert page.evaluate(drawn)
        assert page.words() == []
        assert page.loaded() == [address]


def test_e1_23_what_cannot_be_is_said(bench: Bench) -> None:
    (bench.root / "x.jsonl").write_text("".join(log_entries(3)) + "torn {\n")
    whole = ("-f", "x.jsonl", "-j", "job")  # a file needs no project
    code, _, err = mltrace(bench, *whole, "-o", "sub/y.gz", module="mltrace")
    assert (code, "sub/y.gz" in err) == (1, True)
    code, out, err = mltrace(bench, *whole, "-o", "y.json.gz", module="xprofiler.mltrace")
    assert (code, (bench.root / "y.json.gz").exists()) == (0, True)
    assert "1 line left out that is not a log entry; the first is line 4" in err
    assert mltrace(bench, *whole, "--loglevel", "ERROR")[1:] == ("", "")
    late = ("-s", "2027-01-01T00:00:00.000000+0000", "-o", "z")
    code, _, err = mltrace(bench, *whole, *late)
    assert (code, err) == (1, "mltrace: no log entries of job in that time: nothing was written\n")
    assert list(bench.root.glob("*z.*")) == []
    assert "not a time with its zone" in mltrace(bench, *whole, "-s", "yesterday")[2]
    assert "needs the project: -p" in mltrace(bench, "-j", "job")[2]


class Logging:
    """What answers instead of Cloud Logging: a page at a time, once."""

    asked: ClassVar[list[str]] = []

    def __init__(self, project: str) -> None:
        self.project = project

    def list_entries(self, *, filter_: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(filter_)
        return map(json.loads, log_entries(3))


def test_e1_23_the_first_page_of_cloud_logging_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = tmp_path / "cloud"
    words = ["-j", "job", "-p", "proj", "-l", "a=1 OR b=2", "-o", str(stem)]
    assert mltrace_main(words, client=Logging) == 0
    assert "3 lines of 3 workers" in capsys.readouterr().out
    events = json.loads(gzip.decompress(stem.with_suffix(".gz").read_bytes()))["traceEvents"]
    assert [e["name"][-2:] for e in events if e["ph"] == "i"] == ["#0", "#1", "#2"]
    assert Logging.asked[0].endswith(" AND (a=1 OR b=2)")
    assert stem.with_suffix(".html").exists()


# ── without any cloud ──────────────────────────────────────────────────────────────────────────

PROGRAM = """\
import sys, time
import jax, jax.numpy as jnp
jax.profiler.start_server(int(sys.argv[1]))
step = jax.jit(lambda x: x @ x / 100)
x = jnp.ones((100, 100))
step(x).block_until_ready()
print("ready", flush=True)
while True:
    x = step(x).block_until_ready()
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def programs() -> Iterator[list[int]]:
    """Two JAX programs that never heard of Runwatch, and the ports they serve."""
    ports = [free_port(), free_port()]
    begun = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(port)], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        for port in ports
    ]  # fmt: skip
    try:
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield ports
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def planes(file: Path) -> list[bytes]:
    data = file.read_bytes()
    return [
        data[b:e]
        for number, begin, stop in fields(data, 0, len(data))
        if number == 1
        for field, b, e in fields(data, begin, stop)
        if field == 2
    ]


def answer(url: str) -> Any:
    with tokens.urlopen(url, timeout=100) as reply:
        return json.loads(reply.read())


@pytest.mark.xdist_group("two programs")
def test_e1_24_everything_on_this_machine(bench: Bench, programs: list[int]) -> None:
    bench.path = str(bench.root / "nothing-here")
    logs = bench.root / "logs"
    missing = bench.run("create", "-l", "logs/run", code=1).stderr
    assert "Log directory logs/run does not exist." in missing and "gs://" in missing
    (bench.root / "file").touch()
    assert (
        "it is no directory" in bench.run("create", "-l", str(bench.root / "file"), code=1).stderr
    )
    done = bench.type("create", "-l", str(logs), "-n", "mine", "-z", "here")
    created = done.stdout
    assert f"{logs} is new: it waits for its first profile" in done.stderr
    try:
        url = re.search(r"^1\. (http://127\.0\.0\.1:\d+)(\S*)$", created, re.MULTILINE)
        assert url is not None, created
        for same in (str(logs), f"file://{logs}/", "logs"):
            [shown] = json.loads(bench.type("list", "-l", same, "--json").stdout)
            assert shown == {
                "log_directory": str(logs), "url": "".join(url.groups()), "name": "mine",
                "zone": "here", "backend": "local",
            }  # fmt: skip
        assert rows(bench.run("list").stdout)[0][2] == "mine"
        assert f"URL: {''.join(url.groups())}" in bench.type("connect", "-l", "logs").stdout
        _has_a_port_of_its_own(bench, logs, url.group(2))
        assert "Exiting..." in bench.type("create", "-l", str(logs)).stdout
        bench.type("create", "-l", str(logs), "-n", "mine", said="y\n", code=2)

        hosts = [f"localhost:{port}" for port in programs]
        words = ("capture", "-l", f"file://{logs}", "-f", "jax", "-d", "300", "-n", *hosts)
        done = bench.run(*words, "--session", "both")
        saved = f"Profile saved to file://{logs}/tensorboard and session id is session_both."
        assert done.stdout.count(saved) == 2
        folder = logs / "tensorboard" / "plugins" / "profile" / "session_both"
        names = [f"localhost_{port}.xplane.pb" for port in sorted(programs)]
        assert sorted(os.listdir(folder)) == names
        assert all(b"/host:CPU" in planes(folder / name) for name in names)
        token = url.group(2).removeprefix("/viewers/")
        assert token.startswith("?token=")
        listed = answer(f"{url.group(1)}/api/v1/profiles{token}")["profiles"]
        assert [one["session"] for one in listed] == ["session_both"]
        assert "exists already" in bench.run(*words, "--session", "both", code=1).stderr
    finally:
        bench.run("delete", "-l", str(logs), "-q")
    assert bench.run("list", "-l", str(logs), "--json").stdout == "[]\n"
    assert os.listdir(bench.root / "home") == []
    for words in (("list",), ("list", "-z", ZONE), ("create", "-l", DIRECTORY, "-z", ZONE)):
        [line] = bench.run(*words, code=1).stderr.splitlines()
        assert "gcloud is not on the PATH" in line
    registered = bench.run("register", "-l", str(logs), "-m", "my-run").stdout
    assert "runwatch show my-run" in registered


def _has_a_port_of_its_own(bench: Bench, logs: Path, page: str) -> None:
    """`connect -p` leads to the viewer, at that port, until `connect -d`."""
    ports = [free_port(), free_port()]
    connect = ("connect", "-l", str(logs))
    notes = set(os.listdir(bench.root / "home"))
    for port in ports:
        told = bench.type(*connect, "-p", str(port)).stdout
        assert f"URL: http://localhost:{port}{page}\n" in told
        asked = f"http://localhost:{port}/api/v1/profiles{page.removeprefix('/viewers/')}"
        assert answer(asked)["profiles"] == []
    until(lambda: _is_free(ports[0]))  # the second took its place
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        failed = bench.run(*connect, "-p", str(taken), code=1).stderr
    assert f"port {taken} cannot be used" in failed
    bench.type(*connect, "-p", str(ports[1]))
    bench.run(*connect, "-d")
    until(lambda: _is_free(ports[1]))
    assert set(os.listdir(bench.root / "home")) == notes


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.xdist_group("two programs")
def test_what_is_captured_is_in_the_viewer_of_its_run(bench: Bench, programs: list[int]) -> None:
    """`create -l RUN/tensorboard` before anything is there, then `capture -l RUN`; and what JAX
    itself writes when it is given RUN.  (`create -l RUN` is test_e1_24.)"""
    run = bench.root / "run-1"
    session = ("-d", "100", "-f", "jax", "-n", "localhost", "-p", str(programs[0]), "--session")
    bench.type("create", "-l", f"{run}/tensorboard/", "-n", "first")
    try:
        [viewer] = json.loads(bench.run("list", "-n", "first", "--json").stdout)
        bench.run("capture", "-l", str(run), *session, "a")
        bench.run("capture", "-l", f"{run}/tensorboard", *session, "b")
        own = run / "plugins" / "profile" / "c"
        shutil.copytree(run / "tensorboard/plugins/profile/session_a", own)
        assert _sessions(viewer["url"]) == {("run-1", "session_a"), ("run-1", "session_b"),
                                            ("run-1", "c")}  # fmt: skip
    finally:
        bench.run("delete", "-n", "first", "-q")


def _sessions(url: str) -> set[tuple[str, str]]:
    listed = answer(url.replace("/viewers/", "/api/v1/profiles"))["profiles"]
    return {(one["run"], one["session"]) for one in listed}


@pytest.mark.xdist_group("two programs")
def test_a_capture_through_a_url(bench: Bench, programs: list[int]) -> None:
    """local:// goes the way of s3://: through fsspec."""
    logs = bench.root / "store"
    logs.mkdir()
    done = bench.run("capture", "-l", f"local://{logs}", "-d", "100", "-f", "pytorch", "-n",
                     "localhost", "-p", str(programs[0]), "--session", "s", "--json")  # fmt: skip
    file = logs / "tensorboard/plugins/profile/session_s/localhost.xplane.pb"
    assert json.loads(done.stdout) == {
        "session": "session_s",
        "directory": f"local://{logs}/tensorboard",
        "hosts": [{"host": "localhost", "files": [f"local://{file}"], "why": ""}],
    }
    assert b"/host:CPU" in planes(file)


@pytest.mark.xdist_group("two programs")
def test_a_capture_of_which_some_fail(bench: Bench, programs: list[int], registry: str) -> None:
    logs = bench.root / "logs"
    logs.mkdir()
    closed, other = free_port(), registry.removeprefix("http://")
    done = bench.run(
        # For so long that the second is there, on whatever machine, before the first is through.
        "capture", "-l", str(logs), "-d", "1500", "--json", "-n", f"localhost:{closed}", other,
        f"localhost:{programs[0]}", f"127.0.0.1:{programs[0]}", code=1,
    )  # fmt: skip
    told = json.loads(done.stdout)["hosts"]
    assert f"nothing listens on localhost:{closed}" in told[0]["why"]
    assert f"{other} answers, but is not a profiler service" in told[1]["why"]
    # The same program twice: it is profiled once, and says so to the other.
    assert sorted(bool(one["files"]) for one in told[2:]) == [False, True]
    assert "another profiling session is active" in told[2]["why"] + told[3]["why"]
    bench.run("capture", "-l", str(logs), "-n", other, "--session", "../out", code=2)
    bench.run("capture", "-l", str(logs), "-n", other, "--session", "none", code=1)
    assert not (logs / "tensorboard/plugins/profile/session_none").exists()


def test_a_viewer_that_was_killed_is_forgotten(bench: Bench) -> None:
    logs = bench.root / "logs"
    logs.mkdir()
    bench.type("create", "-l", str(logs), "-n", "mine", "--base-path=/team/x")
    about = json.loads((bench.root / "home/mine.json").read_text())
    assert "/team/x/" in about["instance"]["url"]
    os.killpg(about["pid"], signal.SIGKILL)
    until(lambda: bench.run("list", "-l", str(logs), "--json").stdout == "[]\n")
    assert os.listdir(bench.root / "home") == []
    failed = bench.type("create", "-l", str(logs), "--no-such-flag", code=1).stderr
    assert "the viewer did not start" in failed


# ── patience ───────────────────────────────────────────────────────────────────────────────────


def test_e1_25_interrupted_nothing_is_left_half_made(bench: Bench) -> None:
    bench.machines(machine("xprof-one", "gs://bucket/there"))
    bench.standins.rule("gcloud", "storage", "cat", code=1)
    bench.standins.rule("gcloud", "ssh", "-L 6006", hangs=True)
    for words, call, after in (
        (("create", "-l", DIRECTORY, "-n", "vm"), ("storage", "cat"), ("instances", "delete")),
        (("connect", "-l", "gs://bucket/there"), ("ssh", "-L"), ("ssh", "-O exit")),
    ):
        with bench.begin(*words, "-z", ZONE) as process:
            until(lambda call=call: bench.gcloud(*call), what=str(call))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert len(bench.gcloud(*after)) == 1


def test_e1_25_json_for_machines(bench: Bench) -> None:
    bench.machines()
    shown = json.loads(bench.run("list", "-l", DIRECTORY, "--json").stdout)
    assert [(one["name"], one["backend"]) for one in shown] == [("xprof-one", "gce")]
    words = ("capture", "-l", DIRECTORY, "-z", ZONE, "-f", "jax", "-n", "h1", "--session", "s")
    told = json.loads(bench.run(*words, "--json").stdout)
    file = f"{DIRECTORY}/tensorboard/plugins/profile/session_s/h1.xplane.pb"
    assert told["hosts"] == [{"host": "h1", "files": [file], "why": ""}]


def test_a_command_that_hangs_is_ended(bench: Bench) -> None:
    bench.more["XPROFILER_COMMAND_SECONDS"] = "0.3"
    bench.standins.rule("gcloud", "list", hangs=True)
    assert "took longer than 0 s" in bench.run("list", code=1).stderr
    bench.more["XPROFILER_COMMAND_SECONDS"] = "soon"
    assert "'soon' is not a number of seconds" in bench.run("list", code=2).stderr


def test_on_another_machine(bench: Bench) -> None:
    told = {"log_directory": "/data", "url": "http://127.0.0.1:8500/viewers/", "name": "xprof-1",
            "zone": "local", "backend": "local"}  # fmt: skip
    hosts = [{"host": "a", "files": ["f"], "why": ""}, {"host": "b", "files": [], "why": "no"}]
    bench.standins.rule("ssh", "gpu-1", "xprofiler list", out=json.dumps([told]))
    bench.standins.rule("ssh", "gpu-1", "xprofiler capture", code=1,
                        out=json.dumps({"session": "s", "hosts": hosts}))  # fmt: skip
    shown = rows(bench.run("list", "-z", "ssh:gpu-1").stdout)
    assert shown == [["/data", told["url"], "xprof-1", "ssh:gpu-1"]]
    assert (
        "URL: http://localhost:6006/viewers/"
        in bench.run("connect", "-z", "ssh:gpu-1", "-l", "/data").stdout
    )
    tunnel = bench.standins.calls("ssh", "-L")[0]
    assert tunnel[-4:] == ["-L", "6006:127.0.0.1:8500", "--", "gpu-1"]
    done = bench.run("capture", "-z", "ssh:gpu-1", "-l", "/data", "-f", "jax", "-n", "a", "b",
                     code=1)  # fmt: skip
    assert "Failed to profile host b\nno" in done.stderr
    bench.run("list", "-z", "ssh:-oProxyCommand=id", code=2)
    assert bench.gcloud() == []
