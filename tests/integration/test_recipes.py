"""CONTRIBUTING's recipes are true: three of them are followed on a copy of the sources.

Which files a recipe touches is read from the document; what was really touched, from the copy.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from runwatch.testing import until
from runwatch.views.diagnosis.hang import diagnose
from tests.integration.processes import Cluster
from tests.tokens import urlopen
from tests.unit.views.diagnosis.stories import CAUSES, recorded

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "runwatch"
FILES: Final = {
    "A device metric": 2,
    "A diagnosis rule": 2,
    "A goodput class": 2,
    "An endpoint with its panel": 4,
    "A command": 2,
    "An export format": 3,
    "A form of logs to import": 3,
    "A store engine": 2,
    "A framework hook": 2,
}
"""Recipe → the files that it touches; a package counts as one."""


class Item(NamedTuple):
    """One numbered line of a recipe: a file or a package, one of those that it names."""

    text: str
    paths: tuple[str, ...]

    def fits(self, path: str) -> bool:
        patterns = (re.escape(p).replace("<name>", r"\w+") for p in self.paths)
        return any(re.match(p if p.endswith("/") else rf"{p}\Z", path) for p in patterns)


def recipes() -> dict[str, list[Item]]:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")[2]
    items: dict[str, list[Item]] = {}
    for recipe in text.split("\n### ")[1:]:
        title, _, body = recipe.partition("\n")
        numbered = re.findall(r"^\d\. (.*(?:\n   .*)*)", body, re.MULTILINE)
        items[title] = [Item(t, tuple(re.findall(r"`([^`\s]*/[^`\s]*)`", t))) for t in numbered]
    return items


class Copy:
    """A copy of the sources, on which a recipe is followed."""

    def __init__(self, root: Path) -> None:
        self.package = root / "src" / "runwatch"
        self.environment = {"PYTHONPATH": f"{root / 'src'}:{ROOT}", "COLUMNS": "200"}
        # With what was compiled: dates are kept, so Python need not do it again.
        shutil.copytree(PACKAGE, self.package)

    def add(self, path: str, text: str) -> None:
        file = self.package / path
        assert not file.exists()
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def add_line(self, path: str, line: str, *, before: str) -> None:
        file = self.package / path
        text = file.read_text()
        assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
        file.write_text(text.replace(before, f"{line}\n{before}"))

    def touched(self) -> dict[str, list[str]]:
        """Path → the lines that were added to the file; none if the file itself was."""
        changed: dict[str, list[str]] = {}
        for file in self.package.rglob("*"):
            path = file.relative_to(self.package)
            if file.is_dir() or "__pycache__" in path.parts:
                continue
            if not (PACKAGE / path).exists():
                changed[str(path)] = []
            elif (PACKAGE / path).read_bytes() != file.read_bytes():
                changed[str(path)] = _added(PACKAGE / path, file)
        return changed

    def python(self, *words: str, directory: Path) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=Cluster.environment_of(directory) | self.environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout


def _added(before: Path, after: Path) -> list[str]:
    lines = before.read_text().splitlines(), after.read_text().splitlines()
    edits = [line for line in difflib.ndiff(*lines) if line[0] in "+-"]
    assert all(edit.startswith("+ ") for edit in edits), f"{after}: lines are added, none changed"
    return [edit[2:] for edit in edits]


def check_touched(copy: Copy, title: str) -> dict[str, list[str]]:
    """The recipe names every file that was touched, and nothing that need not be touched."""
    touched, items = copy.touched(), recipes()[title]
    for path in touched:
        assert any(item.fits(path) for item in items), f"{title} does not name {path}"
    for item in items:
        assert any(item.fits(path) for path in touched), f"{title} did not need: {item.text}"
    return touched


class CopiedCluster(Cluster):
    """Its head, agent and trainers run the copy."""

    def __init__(self, root: Path, copy: Copy) -> None:
        self.more = dict(copy.environment)
        super().__init__(root)

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self.more

    def get(self, path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self.http_port}/api/v1/{path}", timeout=100) as answer:
            return json.load(answer)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path, copy: Copy) -> Iterator[CopiedCluster]:
    cluster = CopiedCluster(tmp_path / "cluster", copy)
    yield cluster
    cluster.close()


# ── the document ───────────────────────────────────────────────────────────────────────────────


def test_every_recipe_is_there_and_short() -> None:
    assert {title: len(items) for title, items in recipes().items()} == FILES


@pytest.mark.parametrize("title", FILES)
def test_what_a_recipe_names_is_there(title: str) -> None:
    for item in recipes()[title]:
        assert item.paths, f"no file in {item.text!r}"
        for path in item.paths:
            base = ROOT if path.startswith("web/") else PACKAGE
            assert (base / path.partition("<name>")[0]).exists(), path
        for name, path in re.findall(r"`([A-Z]\w+)` (?:of|in) `([^`]+)`", item.text):
            text = (PACKAGE / path).read_text()
            assert re.search(rf"^(class )?{name}\b", text, re.MULTILINE), f"{name} in {path}"


# ── a device metric ────────────────────────────────────────────────────────────────────────────

METRIC: Final = "tpu_hbm_bytes_per_second"
MEANING: Final = "Bytes read from and written to the memory of the chip."
AGENT_WITH_A_CHIP: Final = """
import runpy, sys
from types import ModuleType, SimpleNamespace

answers = {"duty_cycle_pct": ["50.0"], "hbm_bandwidth": ["1.25e12"]}
library = ModuleType("libtpu.sdk.tpumonitoring")
library.list_supported_metrics = lambda: list(answers)
library.get_metric = lambda name: SimpleNamespace(data=lambda: answers[name])
sys.modules[library.__name__] = library
from runwatch.agent.collectors import DEVICES, tpu
DEVICES["tpu"] = (lambda: True, tpu.open_collectors)
tpu.NODES = ()  # there is no file of a chip here that the trainer could have open
runpy.run_module("runwatch.agent", run_name="__main__", alter_sys=True)
"""


def test_a_device_metric_is_a_line_in_two_files(copy: Copy, cluster: CopiedCluster) -> None:
    copy.add_line(
        "agent/collectors/tpu.py",
        f'    ("hbm_bandwidth", "{METRIC}", "B/s"),',
        before='    ("hbm_capacity_usage", ',
    )
    copy.add_line(
        "views/device_metrics.py",
        f'    DeviceMetric("{METRIC}", "B/s", "memory traffic", "{MEANING}"),',
        before='    DeviceMetric("tpu_hbm_used_bytes", ',
    )
    assert [len(lines) for lines in check_touched(copy, "A device metric").values()] == [1, 1]
    run = start_run_with_a_chip(cluster)

    def points() -> list[dict[str, Any]]:
        if run not in (each["run"] for each in cluster.get("runs")["runs"]):
            return []
        answer: dict[str, Any] = cluster.get(f"runs/{run}/latest?metric={METRIC}")
        return list(answer["points"])

    [point] = until(points, 60, "the new metric of the run's chip")
    assert (point["device"], point["value"], point["unit"]) == ("tpu0", 1.25e12, "B/s")
    [served] = [m for m in cluster.get("devices/metrics")["metrics"] if m["name"] == METRIC]
    assert list(served.values()) == [METRIC, "B/s", "memory traffic", MEANING]
    listed = runwatch(copy, cluster, "devices", "--metrics")
    [line] = [line for line in listed.splitlines() if line.startswith(METRIC)]
    assert re.split(r"  +", line.strip()) == [METRIC, "B/s", "memory traffic", MEANING]
    drawn = runwatch(copy, cluster, "show", run, "--metric", METRIC, "--axis", "time", "--once")
    assert METRIC in drawn


def start_run_with_a_chip(cluster: CopiedCluster) -> str:
    program = cluster.root / "agent_with_a_chip.py"
    program.write_text(AGENT_WITH_A_CHIP)
    cluster.start_head()
    cluster.agent = cluster._python(
        str(program), "--dir", str(cluster.node_root), "--idle", "0",
        "--head", f"127.0.0.1:{cluster.grpc_port}",
    )  # fmt: skip
    return cluster.start_trainer(hertz=10).run


def runwatch(copy: Copy, cluster: CopiedCluster, *words: str) -> str:
    at = ("--dir", str(cluster.head_root))
    return copy.python("-m", "runwatch.cli", *words, *at, directory=cluster.head_root)


# ── a diagnosis rule ───────────────────────────────────────────────────────────────────────────

RULE: Final = '''"""A rank waits at a prompt: somebody debugs it, and the others wait."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing


def blame(scene: Scene) -> Blame | None:
    ranks = tuple(seat.rank for seat in scene.elsewhere if seat.waits_for.kind == "idle")
    if not ranks or not scene.waiting:
        return None
    words = f"{ranks_in_words(ranks)} waits at a prompt: go there and type `continue`"
    return Blame("prompt", ranks, "certain", (words,), standing=Standing("idle", "it is debugged"))
'''
REPORTS: Final = """
import json
from runwatch.views.diagnosis.hang import diagnose
from tests.unit.views.diagnosis import stories
from tests.unit.views.diagnosis.stories import collective, frame, main, native, rank

at_prompt = [*native("read"), frame("cmdloop", "/usr/lib/python3.11/cmd.py", 126), main(40)]
ranks = {number: rank(number, collective()) for number in range(3)}
reports = {cause: diagnose(stories.recorded(cause)) for cause in stories.CAUSES}
reports["debugged"] = diagnose({**ranks, 3: rank(3, stories.thread(at_prompt))})
print(json.dumps({name: report.to_json() for name, report in reports.items()}))
"""


def test_a_diagnosis_rule_is_a_file_and_a_line(copy: Copy, tmp_path: Path) -> None:
    before = json.loads(copy.python("-c", REPORTS, directory=tmp_path))
    copy.add("views/diagnosis/rules/prompt.py", RULE)
    copy.add_line("views/diagnosis/rules/__init__.py", '    "prompt",', before='    "elsewhere",')
    assert check_touched(copy, "A diagnosis rule") == {
        "views/diagnosis/rules/prompt.py": [],
        "views/diagnosis/rules/__init__.py": ['    "prompt",'],
    }
    after = json.loads(copy.python("-c", REPORTS, directory=tmp_path))
    assert before.pop("debugged")["rule"] == "elsewhere"
    report = after.pop("debugged")
    assert (report["rule"], report["ranks"], report["confidence"]) == ("prompt", [3], "certain")
    assert report["evidence"] == ["rank 3 waits at a prompt: go there and type `continue`"]
    assert report["text"].endswith("rank 3 waits at a debugger's prompt (train.py:40) since "
                                   "2023-11-14T22:22:11Z; it is debugged")  # fmt: skip
    here = {cause: diagnose(recorded(cause)).to_json() for cause in CAUSES}
    assert after == before == json.loads(json.dumps(here))


# ── a store engine ─────────────────────────────────────────────────────────────────────────────

ENGINE: Final = '''"""DuckDB under another name."""

from __future__ import annotations

from dataclasses import replace

from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import StoreHealth


class CopperStore(DuckStore):
    def health(self) -> StoreHealth:
        return replace(super().health(), engine="copper")
'''
CONFORMANCE: Final = (
    "tests/unit/store/test_conformance.py::test_definitions_sent_again_change_nothing",
    "tests/unit/store/test_engines.py::test_an_engine_opens_by_its_name_and_says_it",
)


@pytest.mark.soak
def test_a_store_engine_is_a_package_and_a_line(
    copy: Copy, cluster: CopiedCluster, tmp_path: Path
) -> None:
    line = '    "copper": "copper.engine:CopperStore",'
    copy.add("store/copper/__init__.py", "")
    copy.add("store/copper/engine.py", ENGINE)
    copy.add_line("store/engines.py", line, before='    "duckdb": ')
    assert check_touched(copy, "A store engine") == {
        "store/copper/__init__.py": [],
        "store/copper/engine.py": [],
        "store/engines.py": [line],
    }
    cluster.more["RUNWATCH_STORE_ENGINE"] = "copper"
    cluster.start_head()
    assert cluster.get("health")["engine"] == "copper"
    options = ("-v", "-p", "no:cacheprovider", "-k", "copper")
    said = copy.python("-m", "pytest", *options, *CONFORMANCE, directory=tmp_path)
    assert sorted(re.findall(r"::(\w+\[copper[\w-]*\]) PASSED", said)) == [
        "test_an_engine_opens_by_its_name_and_says_it[copper]",
        "test_definitions_sent_again_change_nothing[copper-disk]",
        "test_definitions_sent_again_change_nothing[copper-memory]",
    ]
