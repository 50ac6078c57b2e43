"""A command behaves with `runwatch exec` exactly as without, byte for byte and code for code."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from runwatch.record.life import Joined, RunEnd, RunStart
from runwatch.testing import read_stories, until
from tests.integration.exec_trials import (
    EXEC,
    both,
    environment,
    launcher,
    lines,
    run,
    under,
)

PYTHON = sys.executable


def start(command: list[str], directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(directory),
    )


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


# ── what the command writes, reads and returns ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    "script",
    [
        "echo out; echo err >&2; exit 3",
        r"printf 'no newline'; printf '\000\377\r\n\033[31m' >&2",
        "cat; echo read",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -SEGV $$",
        "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done 2>&1",
        "exec nosuch-command-of-ours 2>/dev/null",
        "trap 'echo bye' EXIT; exit 5",
        "exec 1>&-; echo gone 2>/dev/null; exit 4",
        "nohup sh -c 'echo on; exit 6'",
        "ls /proc/self/fd; ulimit -a; umask; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status",
    ],
)
def test_a_command_is_the_same_with_us(script: str, tmp_path: Path) -> None:
    without, with_us = both(["sh", "-c", script], tmp_path, given=b"given\n\0x")
    assert with_us == without


@pytest.mark.parametrize(
    ("command", "code"),
    [(["nosuch-command-of-ours"], 127), (["/nosuch/x"], 127), (["/etc"], 126), (["{plain}"], 126)],
)
def test_a_command_that_cannot_run_ends_as_a_shell_says(
    command: list[str], code: int, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    command = [word.format(plain=plain) for word in command]
    done = run(under(command), tmp_path)
    assert (done.out, done.code) == (b"", code)
    assert command[0].encode() in done.err and done.err.count(b"\n") == 1
    assert run(["sh", "-c", '"$0"', *command], tmp_path).code == code


def test_a_script_without_a_first_line_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("echo $1; exit 7\n")
    script.chmod(0o755)
    assert run(under([str(script), "arg"]), tmp_path)[::2] == (b"arg\n", 7)


@pytest.mark.parametrize(
    "into", [">$file 2>&1", ">>$file 2>>$file", "2>/dev/stdout >/dev/stderr | cat >$file"]
)
def test_both_streams_into_one_file_keep_their_order(into: str, tmp_path: Path) -> None:
    """Also where it is opened twice."""
    script = "for i in $(seq 200); do echo out $i; echo err $i >&2; done"
    found = []
    for name, command in (("without", ["sh", "-c", script]), ("with", under(["sh", "-c", script]))):
        redirected = f'file=$1; shift; "$@" {into}'
        run(["sh", "-c", redirected, "sh", str(tmp_path / name), *command], tmp_path)
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == 400


def test_a_flood_of_bytes_passes_whole(tmp_path: Path) -> None:
    script = "head -c 200000000 /dev/zero; yes | head -c 50000000"
    sums = []
    for command in (["sh", "-c", script], under(["sh", "-c", script])):
        process = start(command, tmp_path)
        assert process.stdout is not None
        found = hashlib.sha1()
        while piece := process.stdout.read(1 << 20):
            found.update(piece)
        sums.append(found.hexdigest())
        process.communicate()
        assert process.returncode == 0
    assert sums[0] == sums[1]


def test_who_writes_for_a_reader_that_went_away_is_told(tmp_path: Path) -> None:
    for command in (["yes"], under(["yes"])):
        process = start(command, tmp_path)
        assert process.stdout is not None
        process.stdout.read(2)
        process.stdout.close()
        assert process.wait(100) == -signal.SIGPIPE
        process.stdout = None
        process.communicate()


STREAMS = """
import os, sys
streams = [sys.stdin, sys.stdout, sys.stderr]
with open(sys.argv[1], "w") as file:
    print([os.path.exists(f"/proc/self/fd/{n}") for n in range(3)], file=file)
    print([stream is None for stream in streams], file=file)
print("said")
print("said", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize(
    "closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
)
def test_closed_streams_stay_closed(closed: str, tmp_path: Path) -> None:
    """What we open must not become the command's: it would write there in vain, and fail."""
    found = []
    for how in ("alone", "under"):
        command = [sys.executable, "-c", STREAMS, str(tmp_path / how)]
        words = under(command) if how == "under" else command
        got = run(["bash", "-c", f'exec "$@" {closed}', "bash", *words], tmp_path)
        found.append((got.code, got.out, got.err, (tmp_path / how).read_text()))
    assert found[0] == found[1]
    assert found[0][0] == 3


def test_other_descriptors_are_the_commands_alone(tmp_path: Path) -> None:
    """The reader of a pipe sees its end when the command closes it, though we still run."""
    read, write = os.pipe()
    command = ["bash", "-c", f"echo early >&{write}; exec {write}>&-; cat"]
    process = subprocess.Popen(
        under(command),
        stdin=subprocess.PIPE,
        env=environment(tmp_path),
        pass_fds=[write],
    )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"early\n"
    assert process.poll() is None
    process.communicate(b"")
    assert process.returncode == 0


# ── signals ────────────────────────────────────────────────────────────────────────────────────

COUNTS = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, lambda n, _: os.write(1, signal.Signals(n).name.encode() + b"\\n"))
os.write(1, b"ready\\n")
sys.stdin.read()
"""


@pytest.mark.parametrize("to_all", [False, True])
def test_a_signal_arrives_once(to_all: bool, tmp_path: Path) -> None:
    """Whether it is sent to us alone, or to the whole group as batch systems do."""
    process = subprocess.Popen(
        under([PYTHON, "-c", COUNTS]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
        process_group=0,
    )
    assert line_of(process.stdout) == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        os.killpg(process.pid, number) if to_all else os.kill(process.pid, number)
        assert line_of(process.stdout).decode() == f"{number.name}\n"
    # If the wrapper has nothing more to pass on, it waits for the next one.
    until(lambda: _sleeps_for_signal(process.pid), what="nothing is on its way")
    out, _ = process.communicate(b"")
    assert (out, process.returncode) == (b"", 0)


def _sleeps_for_signal(pid: int) -> bool:
    called = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return called == {"x86_64": "128", "aarch64": "137"}[os.uname().machine]  # rt_sigtimedwait


def test_who_ignores_the_end_of_children_is_waited_for(tmp_path: Path) -> None:
    """Some supervisors start their programs so."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    look = ["grep", "SigIgn", "/proc/self/status"]
    becomes = f"import os; os.execvp('grep', {look})"
    without = run([PYTHON, "-c", ignoring, "-c", becomes], tmp_path)
    with_us = run([PYTHON, "-c", ignoring, *under(look)[1:]], tmp_path)
    assert with_us.code == without.code == 0
    bit = 1 << (signal.SIGCHLD - 1)
    assert int(with_us.out.split()[1], 16) & bit == int(without.out.split()[1], 16) & bit == bit


def test_a_child_that_ignores_a_signal_goes_on_and_so_do_we(tmp_path: Path) -> None:
    process = start(under(["sh", "-c", "trap '' TERM; echo ready; cat; exit 9"]), tmp_path)
    assert line_of(process.stdout) == b"ready\n"
    process.terminate()
    assert process.stdin is not None
    process.stdin.write(b"still\n")
    process.stdin.flush()
    assert line_of(process.stdout) == b"still\n"
    process.communicate(b"")
    assert process.returncode == 9


def test_the_command_ends_with_a_wrapper_that_is_killed(tmp_path: Path) -> None:
    process = start(under(["sh", "-c", "echo $$; exec sleep 600"]), tmp_path)
    child = int(line_of(process.stdout))
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))
    story = until(lambda: _ended(tmp_path), what="the scribe says so")
    assert (story["status"], story["signal"]) == ("killed", "SIGKILL")


def _is_zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def _ended(directory: Path) -> dict[str, object] | None:
    try:
        bodies = [body for story in read_stories(directory) for body in story.bodies(RunEnd.KIND)]
    except AssertionError:  # a journal that is being made
        return None
    return dict(bodies[0]) if bodies else None


# ── processes that outlive the command ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["({}) &", "nohup sh -c '{}' 2>&1 &", "setsid sh -c '{}' &"])
def test_a_daemon_goes_on_and_is_read_to_its_end(how: str, tmp_path: Path) -> None:
    late = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo late; echo later"
    process = start(under(["sh", "-c", f"{how.format(late)} echo early; exit 3"]), tmp_path)
    assert line_of(process.stdout) == b"early\n"
    assert process.wait(100) == 3, "nobody waits for the daemon"
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=100)
    assert out == b"late\nlater\n"


def test_a_program_may_become_another_one(tmp_path: Path) -> None:
    script = "import os; print(1, flush=True); os.execvp('sh', ['sh', '-c', 'echo two; exit 8'])"
    without, with_us = both([PYTHON, "-c", script], tmp_path)
    assert with_us == without == (b"1\ntwo\n", b"", 8)


# ── when we cannot do our part ─────────────────────────────────────────────────────────────────


def test_exec_inside_exec_is_one_run(tmp_path: Path) -> None:
    inner = under(["sh", "-c", "echo in; exit 4"], "--name", "inner")
    done = run(under(inner), tmp_path)
    assert done == (b"in\n", b"", 4)
    story = launcher(tmp_path)
    assert lines(story) == [("out", "in")]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/x"])
def test_where_nothing_can_be_recorded_the_command_runs(place: str, tmp_path: Path) -> None:
    more = {"RUNWATCH_DIR": place, "HOME": place, "TMPDIR": place}
    without, with_us = both(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, more=more)
    assert with_us == without


def test_where_no_thread_can_be_started_the_command_runs(tmp_path: Path) -> None:
    """As under a limit of the user's processes: the pipes are still read."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\n"
        "def start(self): raise RuntimeError('can\\'t start new thread')\n"
        "threading.Thread.start = start\n"
    )
    path = os.pathsep.join([str(tmp_path), environment(tmp_path)["PYTHONPATH"]])
    script = "cat; seq 100000; echo err >&2; exit 3"
    more = {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    without, with_us = both(["sh", "-c", script], tmp_path, given=b"given", more=more)
    assert with_us == without
    assert not list(tmp_path.glob("runwatch-exec-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_on_a_full_disk_the_command_runs(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""
        mount -t tmpfs -o size=64k none {disk} || exit 99
        head -c 1M /dev/zero >{disk}/full 2>/dev/null
        exec {" ".join(EXEC)} -- sh -c 'seq 1000; exit 3'
    """
    more = {"RUNWATCH_DIR": str(disk), "TMPDIR": str(disk)}
    done = run(["unshare", "-m", "sh", "-c", script], tmp_path, more=more)
    if done.code in (1, 99):
        pytest.skip(f"no mounts here: {done.err.decode()}")
    assert done == ("".join(f"{n}\n" for n in range(1, 1001)).encode(), b"", 3)


# ── the records ────────────────────────────────────────────────────────────────────────────────


def test_a_command_is_a_run_with_its_lines_and_its_end(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo one; echo two >&2; exit 3"]
    run(under(command, "--group", "g", "--config", "lr=0.1", "--config", "x=y z"), tmp_path)
    story = launcher(tmp_path)
    (began,) = story.bodies(RunStart.KIND)
    assert (began["name"], began["group"], began["argv"]) == ("sh", "g", command)
    assert began["attempt_key"].startswith("exec-")
    assert story.config("user") == {"lr": 0.1, "x": "y z"}
    assert sorted(lines(story)) == [("err", "two"), ("out", "one")]
    assert (story.end["status"], story.end["exit_code"]) == ("failed", 3)
    assert story.end["reason"] == "exit code 3"
    assert story.end["max_rss_bytes"] > 100_000


@pytest.mark.parametrize("options", [(), ("--no-console",), ("--no-hooks",)])
def test_parts_can_be_switched_off(options: tuple[str, ...], tmp_path: Path) -> None:
    done = run(under(["sh", "-c", "echo $RUNWATCH_AUTO"], *options), tmp_path)
    assert done.out.startswith(b"0" if "--no-hooks" in options else b"1")
    assert bool(lines(launcher(tmp_path))) == ("--no-console" not in options)


RECORDS_LATE = """
import os, sys, time
class Late:
    def find_spec(self, name, path=None, target=None):
        while name == "runwatch.launcher.chronicle" and not os.path.exists(os.environ["BEGUN"]):
            time.sleep(0.01)
sys.meta_path.insert(0, Late())
"""


def test_a_run_that_begins_before_the_recorder_is_ready_is_recorded(tmp_path: Path) -> None:
    """On a busy machine the recorder is loaded later than the program."""
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(RECORDS_LATE)
    script = tmp_path / "train.py"
    script.write_text(
        "import os, runwatch\n"
        "with runwatch.init('other') as run:\n"
        "    run.log(loss=1.0)\n"
        "open(os.environ['BEGUN'], 'w').close()\n"
    )
    more = {"PYTHONPATH": str(tmp_path / "late"), "BEGUN": str(tmp_path / "begun")}
    done = run(under([PYTHON, str(script)]), tmp_path, more=more)
    assert done == (b"", b"", 0)
    assert [scope.run for scope in launcher(tmp_path).scopes] == ["train", "other"]


def test_the_wrapper_goes_over_to_the_run_that_the_program_begins(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import runwatch\n"
        "print('before', flush=True)\n"
        "with runwatch.init('other') as run:\n"
        "    run.log(loss=1.0)\n"
        "print('after')\n"
    )
    done = run(under([PYTHON, str(script)]), tmp_path)
    assert done == (b"before\nafter\n", b"", 0)
    story = launcher(tmp_path)
    assert [scope.run for scope in story.scopes] == ["train", "other"]
    assert story.bodies(Joined.KIND) == [{"run": "other"}]
    assert lines(story, "other") == [("out", "before"), ("out", "after")]
    (program,) = (each for each in read_stories(tmp_path) if each.origin.role == "process")
    keys = {scope.attempt_key for each in (program, story) for scope in each.scopes}
    assert len(keys) == 1


def test_a_name_for_the_command_is_the_run_whatever_the_program_says(tmp_path: Path) -> None:
    run(under([PYTHON, "-c", "import runwatch; runwatch.init('x')"], "--name", "mine"), tmp_path)
    runs = {scope.run for story in read_stories(tmp_path) for scope in story.scopes}
    assert runs == {"mine"}


RANKS = """
for rank in 0 1 2; do
    RANK=$rank WORLD_SIZE=3 "$0" -c 'import os, sys
print("rank", os.environ["RANK"], flush=True)
print("to err", os.environ["RANK"], file=sys.stderr)
os.system("echo from a shell")' &
done
wait; echo all
"""


def test_each_rank_is_known_by_its_lines(tmp_path: Path) -> None:
    without, with_us = both(["sh", "-c", RANKS, PYTHON], tmp_path)
    assert sorted(with_us.out.splitlines()) == sorted(without.out.splitlines())
    assert sorted(with_us.err.splitlines()) == sorted(without.err.splitlines())
    story = launcher(tmp_path)
    for rank in (1, 2):
        own = [("err", f"to err {rank}"), ("out", "from a shell"), ("out", f"rank {rank}")]
        assert sorted(lines(story, rank=rank)) == own
    assert ("out", "all") in lines(story, rank=0)


def test_a_reader_that_waits_keeps_no_rank_from_starting(tmp_path: Path) -> None:
    """Though what was written before cannot be passed on."""
    script = """
        yes | head -c 3000000 &
        for rank in 1 2 3; do RANK=$rank "$0" -c "open('$1/$rank', 'w'); print('started')"; done
    """
    process = start(under(["sh", "-c", script, PYTHON, str(tmp_path)]), tmp_path)
    until(lambda: (tmp_path / "1").exists(), what="the first rank runs")
    out, err = process.communicate()
    assert (out.count(b"started"), len(out), err, process.returncode) == (3, 3000024, b"", 0)


def test_torchrun_has_a_run_with_its_ranks(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, runwatch\n"
        "run = runwatch.init()\n"
        "print('hello of', run.rank, flush=True)\n"
        "raise SystemExit(0)\n"
    )
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run(under([*torchrun, str(script)]), tmp_path)
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == [b"hello of 0", b"hello of 1"]
    stories = read_stories(tmp_path)
    ranks = [each.scopes[0] for each in stories if each.origin.role == "process"]
    assert sorted((scope.run, scope.rank) for scope in ranks) == [("job", 0), ("job", 1)]
    assert ("out", "hello of 1") in lines(launcher(tmp_path), rank=1)


# ── inside the program ─────────────────────────────────────────────────────────────────────────


def test_a_program_sees_the_python_that_it_would_see(tmp_path: Path) -> None:
    """The path, the modules of the site, and nothing of ours beside them."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.of_the_site = __file__\n")
    look = (
        "import sys; print([p for p in sys.path if 'dropin' not in p]); print(sys.of_the_site,"
        " sys.modules['sitecustomize'].__file__)"
    )
    without, with_us = both([PYTHON, "-c", look], tmp_path, more={"PYTHONPATH": str(folder)})
    assert with_us == without
    assert b"site/sitecustomize.py" in with_us.out


def test_a_python_without_runwatch_finds_ours(tmp_path: Path) -> None:
    look = "import runwatch.sdk.launched as m, sys; print(m.__name__)"
    done = run(under([PYTHON, "-S", "-c", "import site; site.main()\n" + look]), tmp_path)
    assert (done.out, done.code) == (b"runwatch.sdk.launched\n", 0)
