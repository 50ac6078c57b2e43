"""The image: built from the wheel, for a user that is not root; its steps run without a daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pip
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runwatch._version import __version__
from runwatch.testing import until
from tests.integration.packages import build_ours
from tests.integration.processes import end, free_port
from tests.unit.deploy.dockerfile import Box, Dockerfile, copied, read
from tests.unit.deploy.releases import release

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTEXT = {"Dockerfile", "locked.txt", "sbom.json", "*.whl"}


def dockerfile() -> Dockerfile:
    return read((FOLDER / "Dockerfile").read_text())


def test_every_stage_begins_with_a_digest_that_has_no_default() -> None:
    found = dockerfile()
    assert found.arguments["BASE_DIGEST"] is None
    base = found.arguments["BASE"] or ""
    assert re.fullmatch(r"[a-z0-9./-]+:\d[\w.-]+", base) and not base.endswith(":latest")
    assert len(found.stages) == 2
    for stage in found.stages:
        assert stage.base == "${BASE}@${BASE_DIGEST}"


def test_it_runs_as_a_number_that_is_not_root_and_that_the_chart_names() -> None:
    final = dockerfile().stages[-1]
    [user] = final.of("USER")
    context = release("default").run("head").spec["securityContext"]
    assert user.rest == f"{context['runAsUser']}:{context['runAsGroup']}" == "65532:65532"
    later = [step.word for step in final.steps[final.steps.index(user) :]]
    assert not {"RUN", "COPY", "USER"} & set(later[1:])
    assert final.of("RUN") == [] and final.of("ADD") == []


def test_it_holds_what_was_built_and_nothing_of_the_build() -> None:
    build, final = dockerfile().stages
    copies = [step.rest for step in final.of("COPY")]
    assert copies == [
        "--from=build /opt/runwatch /opt/runwatch",
        "sbom.json /usr/share/runwatch/sbom.json",
    ]
    assert final.environment["PATH"].startswith("/opt/runwatch/bin:")
    assert {word for step in build.of("COPY") for word in step.words[:-1]} <= CONTEXT


def test_what_is_installed_has_hashes_or_is_our_wheel_or_was_asked_for() -> None:
    installs = [s.rest for s in dockerfile().stages[0].of("RUN") if " install " in s.rest]
    locked, ours, more = installs
    assert "--require-hashes" in locked and locked.endswith("-r locked.txt")
    assert "--no-index" in ours and "--no-deps" in ours and ours.endswith("./*.whl")
    assert more.startswith('[ -z "$MORE" ] || ')
    assert all("--only-binary :all:" in each for each in (locked, more))
    assert 'MORE=""' in [step.rest for step in dockerfile().stages[0].of("ARG")]


def test_it_says_what_it_is() -> None:
    [labels] = dockerfile().stages[-1].of("LABEL")
    for name in ("title", "licenses", "version", "revision", "base.name", "base.digest"):
        assert f"org.opencontainers.image.{name}=" in labels.rest
    assert f'licenses="{PROJECT["license"]}"' in labels.rest


def test_the_tag_that_the_chart_asks_for_is_the_one_that_is_built() -> None:
    done = subprocess.run(
        ["make", "-n", "image", "BASE_DIGEST=sha256:0"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [image] = re.findall(r"--tag (\S+) ", done.stdout)
    wanted = {c["image"] for run in release("default").runs() for c in run.containers()}
    assert wanted == {image} == {f"runwatch:{__version__}"}


def test_without_a_digest_nothing_is_built_and_the_way_out_is_said() -> None:
    done = subprocess.run(
        ["make", "image"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode != 0 and "make image BASE_DIGEST=sha256:" in done.stdout
    assert "wheel" not in done.stdout


# ── what is locked ────────────────────────────────────────────────────────────────────────────


def entries(file: Path) -> dict[tuple[str, str], set[str]]:
    """Name and version → hashes."""
    found: dict[tuple[str, str], set[str]] = {}
    for entry in re.split(r"\n(?=\S)", file.read_text().strip()):
        requirement = Requirement(entry.partition("\\")[0])
        [version] = [specifier.version for specifier in requirement.specifier]
        hashes = set(re.findall(r"--hash=(sha256:[0-9a-f]{64})(?= |\n|$)", entry))
        found[canonicalize_name(requirement.name), version] = hashes
    return found


def test_everything_that_head_and_cluster_need_is_locked_with_hashes() -> None:
    locked = entries(FOLDER / "locked.txt")
    assert all(locked.values())
    extras = PROJECT["optional-dependencies"]
    for wanted in map(Requirement, [*PROJECT["dependencies"], *extras["head"], *extras["k8s"]]):
        versions = [v for name, v in locked if name == canonicalize_name(wanted.name)]
        assert versions, f"run make lock: {wanted}"
        assert all(wanted.specifier.contains(version) for version in versions), wanted


def test_it_is_locked_as_make_demo_is_where_both_have_it() -> None:
    demo, image = entries(ROOT / "locked.txt"), entries(FOLDER / "locked.txt")
    assert {key: image.get(key) for key in demo} == demo, "run make lock"


# ── its steps ─────────────────────────────────────────────────────────────────────────────────

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a root of its own needs root"
)


@pytest.mark.soak
@needs_root
@pytest.mark.timeout(1500)
def test_its_steps_make_a_runwatch_that_another_user_starts_on_a_read_only_root(
    tmp_path: Path,
) -> None:
    context = tmp_path / "context"
    context.mkdir()
    wheel, _ = build_ours(tmp_path)
    shutil.copy(wheel, context)
    shutil.copy(FOLDER / "locked.txt", context)
    (context / "sbom.json").write_text("{}")
    box = Box(tmp_path / "root")
    # The official image's Python has pip; this machine's may not.
    shutil.copytree(Path(pip.__file__).parent, box.root / "tools/pip")
    fetched(box.root / "wheels")
    tools = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": "/tools", "MORE": ""}
    tools |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    build, final = dockerfile().stages
    for step in build.steps:
        if step.word == "WORKDIR":
            place = step.rest
            (box.root / place.lstrip("/")).mkdir(parents=True)
        elif step.word == "COPY":
            copied(step, context, box.root, place)
        elif step.word == "RUN":
            done = box.run(["sh", "-c", step.rest], tools, place=place)
            assert done.returncode == 0, (step.rest, done.stderr)
    shutil.rmtree(box.root / "opt/build")
    for name in ("tools", "wheels"):
        shutil.rmtree(box.root / name)

    environment = final.environment
    environment["PATH"] = environment["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
    [entry], [user] = final.of("ENTRYPOINT"), final.of("USER")

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        number = int(user.rest.partition(":")[0])
        command = [*entry.words, *words]
        return box.run(command, environment, place="/tmp", user=number, read_only=True)

    assert started("--version").stdout == f"runwatch {__version__}\n"
    assert "no Runwatch directory /tmp/.runwatch" in started("runs", "--json").stderr
    for part in ("webhook", "operator"):
        done = started("k8s", part)  # it is in no cluster, and says so: all that it needs is there
        assert "Traceback" not in done.stderr and "pip install" not in done.stderr, done.stderr
    assert (done := started("k8s", "files", "/tmp/ours")).returncode == 0, done.stderr
    assert "Read-only file system" in started("k8s", "files", "/opt/ours").stderr
    _serves(box, [*entry.words, "head", "--grpc-port", "0"], environment, int(user.rest[:5]))


def fetched(folder: Path) -> None:
    """From wherever this machine gets its packages: the box knows no index."""
    command = ["download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command, "-r", FOLDER / "locked.txt", "-d", folder],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _serves(box: Box, command: list[str], environment: dict[str, str], user: int) -> None:
    port = free_port()
    words = [*command, "--http-port", str(port), "--dir", "/tmp/head"]
    process = subprocess.Popen(
        box.command(words, place="/tmp", user=user, read_only=True),
        env=box.environment(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )

    def answer() -> Any:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health") as told:
                return json.load(told)
        except OSError:
            return None

    try:
        assert until(answer, 60, "the image's head to answer")
    finally:
        end(process, signal.SIGTERM)
        if process.stderr is not None:
            process.stderr.close()
