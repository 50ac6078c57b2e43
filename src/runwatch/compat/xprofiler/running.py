"""Runs other programs with a deadline, and reports their output when they fail."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Final

from runwatch.errors import RunwatchError

HELP: Final = {
    "gcloud": "the Google Cloud CLI (https://cloud.google.com/sdk); a directory or file:// or "
    "s3:// log directory (-l /path) needs none",
    "kubectl": "kubectl and a cluster's context; a directory (-l /path) needs none",
    "ssh": "OpenSSH",
}
_GRACE_SECONDS: Final = 5.0


class CommandFailed(RunwatchError):
    def __init__(self, words: Sequence[str], code: int, output: str, errors: str) -> None:
        self.output = output
        self.complaint = (errors or output).strip()
        super().__init__(
            f"`{_short(words)}` failed with return code {code}.\n{self.complaint}".strip()
        )


class Runner:
    """`verbose`: every command and its output go to standard error."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def run(self, words: Sequence[str], seconds: float) -> str:
        """Its standard output.  Raises CommandFailed, or RunwatchError if it took too long."""
        self.tell(f"$ {shlex.join(words)}")
        # Files and not pipes: an ssh that goes on in the background would keep a pipe open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            except FileNotFoundError:
                needs = HELP.get(words[0], words[0])
                raise RunwatchError(f"{words[0]} is not on the PATH: this needs {needs}") from None
            code = _ended(process, words, seconds)
            output, errors = _text(out), _text(err)
        self.tell(output)
        if code != 0:
            raise CommandFailed(words, code, output, errors)
        return output

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def tell(self, text: str) -> None:
        if self._verbose and text.strip():
            print(text.rstrip(), file=sys.stderr)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _ended(process: subprocess.Popen[bytes], words: Sequence[str], seconds: float) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise RunwatchError(f"`{_short(words)}` took longer than {seconds:.0f} s") from None
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _short(words: Sequence[str]) -> str:
    line = shlex.join(words).replace("\n", " ")
    return line if len(line) < 200 else f"{line[:200]}…"
