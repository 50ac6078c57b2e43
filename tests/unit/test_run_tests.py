"""`scripts/run_tests.py` on small suites, with the real pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN_TESTS = Path(__file__).parents[2] / "scripts" / "run_tests.py"
GREEN = "def test_green(): pass\n"
RED = "def test_red(): assert False\n"
FLAKY = """
from pathlib import Path
def test_{0}():
    seen = Path("seen-{0}")
    if not seen.exists():
        seen.touch()
        {1}
"""
STOPPED = "def test_stopped(): raise KeyboardInterrupt\n"
BROKEN = "import nothing_of_that_name\n"


def flaky(name: str, how: str = "assert False") -> str:
    return FLAKY.format(name, how)


class Done:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.said = done.stdout
        self.last = done.stdout.splitlines()[-1]

    def lines(self, beginning: str) -> list[str]:
        return [line for line in self.said.splitlines() if line.startswith(beginning)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(place: Path, *texts: str, options: tuple[str, ...] = (), workers: int = 0) -> Done:
    for number, text in enumerate(texts):
        (place / f"test_{number}.py").write_text(text)
    # Only pytest itself: the plugins of this suite take a second to start.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "WORKERS": str(workers)}
    command = [sys.executable, str(RUN_TESTS), *options]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=100
    )
    return Done(done)


def test_green_is_green_and_not_repeated(place: Path) -> None:
    done = run(place, GREEN)
    assert done.status == 0
    assert "again, alone" not in done.said
    assert "1 passed in" in done.last


@pytest.mark.parametrize("names", [("one",), ("one", "two")], ids=len)
def test_up_to_two_flaky_tests_are_named_and_forgiven(place: Path, names: tuple[str, ...]) -> None:
    done = run(place, GREEN, *map(flaky, names))
    assert done.status == 0
    assert done.lines("flaky: ") == [
        f"flaky: test_{n}.py::test_{name} (failed, then passed alone)"
        for n, name in enumerate(names, 1)
    ]
    assert f"1 passed, 0 failed, {len(names)} flaky in" in done.last


@pytest.mark.soak
def test_three_flaky_tests_are_too_many(place: Path) -> None:
    done = run(place, GREEN, *map(flaky, ("one", "two", "three")))
    assert done.status == 1
    assert done.lines("not repeated: 3 tests failed")
    assert "3 failed, 1 passed in" in done.last


@pytest.mark.soak
def test_what_fails_twice_fails(place: Path) -> None:
    done = run(place, GREEN, RED, flaky("one"))
    assert done.status == 1
    assert done.lines("failed twice: ") == ["failed twice: test_1.py::test_red"]
    assert len(done.lines("flaky: ")) == 1
    assert "1 passed, 1 failed, 1 flaky in" in done.last


@pytest.mark.soak
def test_set_up_and_parameters_are_repeated_too(place: Path) -> None:
    late = flaky("one").replace("def test_one():", "@pytest.fixture\ndef made():")
    text = f"import pytest\n{late}@pytest.mark.parametrize('a', ['b::c@d e'])\n"
    done = run(place, GREEN, f"{text}def test_made(made, a): pass\n")
    assert done.status == 0
    assert done.lines("flaky: test_1.py::test_made[b::c@d e] ")
    assert "1 passed, 0 failed, 1 flaky in" in done.last


@pytest.mark.soak
def test_alone_means_in_a_process_without_what_others_left(place: Path) -> None:
    first = "import os\ndef test_first(): os.environ['LEFT'] = '1'\n"
    second = "import os\ndef test_second(): assert 'LEFT' not in os.environ\n"
    done = run(place, first, second)
    assert done.status == 0
    assert done.lines("flaky: test_1.py::test_second ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BROKEN, "did not come to its end (exit status 2)"),
        (STOPPED, "did not come to its end (exit status 2)"),
        ("", "did not come to its end (exit status 5)"),
    ],
    ids=["not read", "interrupted", "no test"],
)
def test_a_run_without_an_end_fails(place: Path, text: str, reason: str) -> None:
    done = run(place, *([flaky("one"), text] if text else [""]))
    assert done.status == 1
    assert reason in done.said
    assert "again, alone" not in done.said
    assert done.last.startswith("==== ")


@pytest.mark.soak
def test_a_pytest_that_breaks_fails(place: Path) -> None:
    (place / "conftest.py").write_text("def pytest_runtest_logreport(): nothing_of_that_name\n")
    done = run(place, flaky("one"))
    assert done.status == 1
    assert "did not come to its end" in done.said


@pytest.mark.soak
def test_a_pytest_that_does_not_start_fails(place: Path) -> None:
    done = run(place, GREEN, options=("--no-such-option",))
    assert done.status == 1
    assert done.last == "==== 0 passed, 1 failed ===="


def test_a_run_that_stops_at_the_first_failure_fails(place: Path) -> None:
    done = run(place, flaky("one"), GREEN, options=("-x",))
    assert done.status == 1
    assert "did not come to its end" in done.said
    assert "again, alone" not in done.said
    assert "1 failed in" in done.last


@pytest.mark.soak
def test_a_loaded_run_repeats_nothing(place: Path) -> None:
    done = run(place, GREEN, flaky("one"), options=("--load", "1"))
    assert done.status == 1
    assert "again, alone" not in done.said
    assert "1 failed, 1 passed in" in done.last


def test_a_signal_ends_pytest_too(place: Path) -> None:
    end = "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    done = run(place, f"import os, signal, time\ndef test_end(): {end}")
    assert done.status == 1
    assert "did not come to its end (exit status -15)" in done.said


@pytest.mark.soak
def test_what_an_earlier_run_remembers_is_forgotten(place: Path) -> None:
    remembered = place / ".pytest_cache" / "v" / "cache" / "lastfailed"
    remembered.parent.mkdir(parents=True)
    remembered.write_text('{"test_1.py::test_gone": true, "test_2.py::test_gone": true}')
    done = run(place, GREEN, flaky("one"))
    assert done.status == 0
    assert "test_gone" not in done.said


class TestSpread:
    """Over workers, as `make test` does it."""

    def run(self, place: Path, *texts: str) -> Done:
        return run(place, *texts, options=("-p", "xdist"), workers=2)

    def test_a_test_whose_worker_dies_is_repeated(self, place: Path) -> None:
        done = self.run(place, GREEN, flaky("one", "__import__('os')._exit(3)"))
        assert done.status == 0
        assert done.lines("flaky: test_1.py::test_one ")
        assert " passed, 0 failed, 1 flaky in" in done.last

    def test_a_test_is_found_without_its_group(self, place: Path) -> None:
        text = f"import pytest\npytestmark = pytest.mark.xdist_group('a group')\n{flaky('one')}"
        done = self.run(place, GREEN, text)
        assert done.status == 0
        assert done.lines("flaky: test_1.py::test_one ")

    def test_a_group_stays_together(self, place: Path) -> None:
        """Its tests share what is slow to start, or may not run beside each other."""
        text = """
import os, pathlib, pytest
@pytest.mark.xdist_group("a group")
@pytest.mark.parametrize("n", range(8))
def test_one(n):
    with pathlib.Path("workers").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
        assert self.run(place, GREEN, text).status == 0
        workers = (place / "workers").read_text().split()
        assert len(workers) == 8
        assert len(set(workers)) == 1, "is this pytest 9.2 with xdist 3.8? Then: make test"

    def test_a_file_that_is_not_read_fails(self, place: Path) -> None:
        done = self.run(place, GREEN, BROKEN)
        assert done.status == 1
        assert "again, alone" not in done.said
