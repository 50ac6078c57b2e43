"""Where a command puts what it exports: a file, or the standard output."""

from __future__ import annotations

import argparse
import codecs
import stat
import sys
from pathlib import Path

from runwatch.cli import source
from runwatch.cli.pictures.progress import progress
from runwatch.errors import UsageError
from runwatch.files import written
from runwatch.terminal import shown


def check_export(arguments: argparse.Namespace) -> None:
    """Before anything is asked: whether `--output` can take what `--format` makes."""
    if arguments.output is None:
        if arguments.format == "parquet" and sys.stdout.isatty():
            raise UsageError("a terminal cannot show Parquet: name a file with -o FILE")
    elif not is_stream(arguments.output):
        check_output(arguments.output, force=arguments.force)


def export(chunks: source.Chunks, output: Path | None) -> None:
    if output is None:
        for chunk in _for_terminal(chunks) if sys.stdout.isatty() else chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    elif is_stream(output):
        with output.open("wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
    else:
        write_file(output, chunks)
        print(f"Wrote {output}")


def is_stream(path: Path) -> bool:
    """A device, a pipe, a socket, or an open descriptor by its name (/dev/stdout)."""
    if str(path.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_output(output: Path, *, force: bool) -> None:
    """A file gets its name when it is whole, in place of what has that name.  So only a regular
    file is replaced: root could take /dev/null from the whole machine."""
    if output.is_dir() or is_stream(output):
        raise UsageError(f"{output} is not a regular file: name another")
    if output.exists() and not force:
        raise UsageError(f"{output} already exists: replace it with --force")
    if not output.parent.is_dir():
        raise UsageError(f"no such directory: {output.parent}")


def write_file(output: Path, chunks: source.Chunks) -> None:
    check_output(output, force=True)
    with (
        written(output, mode=0o666) as file,  # the user's umask applies
        progress(f"writing {output}", "kB") as step,
    ):
        for chunk in chunks:
            file.write(chunk)
            step(max(1, len(chunk) // 1000))


def _for_terminal(chunks: source.Chunks) -> source.Chunks:
    """Without the control characters that somebody may have recorded."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        yield shown(decoder.decode(chunk)).encode()
