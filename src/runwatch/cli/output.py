"""Where a command puts what it exports: a file, or the standard output."""

from __future__ import annotations

import argparse
import codecs
import sys
from pathlib import Path

from runwatch.cli import source
from runwatch.cli.pictures.progress import progress
from runwatch.errors import UsageError
from runwatch.files import written
from runwatch.terminal import shown


def check_export(arguments: argparse.Namespace) -> None:
    """Before anything is asked: whether `--output` can take what `--format` makes."""
    if arguments.output is not None:
        check_output(arguments.output, force=arguments.force)
    elif arguments.format == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal cannot show Parquet: name a file with -o FILE")


def export(chunks: source.Chunks, output: Path | None) -> None:
    if output is not None:
        write_file(output, chunks)
        print(f"Wrote {output}")
        return
    for chunk in _for_terminal(chunks) if sys.stdout.isatty() else chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def check_output(output: Path, *, force: bool) -> None:
    if output.exists() and not force:
        raise UsageError(f"{output} already exists: replace it with --force")
    if not output.parent.is_dir():
        raise UsageError(f"no such directory: {output.parent}")


def write_file(output: Path, chunks: source.Chunks) -> None:
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
