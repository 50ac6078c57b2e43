"""Log directories in a bucket: what they look like, and whether they are there."""

from __future__ import annotations

import re
from typing import Final

from runwatch.compat.xprofiler.backend import Context
from runwatch.compat.xprofiler.running import CommandFailed
from runwatch.errors import RunwatchError, UsageError

MAX_LENGTH: Final = 64
MAX_LEVELS: Final = 32
# Neither quotes nor blanks nor what a shell expands: paths become part of commands on other hosts.
_PATH: Final = re.compile(r"gs://[A-Za-z0-9][A-Za-z0-9._-]*(/[^\s'\"\\$`;|&<>()*?]*)?")


def check_path(log_directory: str) -> str:
    """The bucket's URL.  Raises UsageError if it is not a path in a bucket."""
    if not _PATH.fullmatch(log_directory):
        raise UsageError(
            f"{log_directory!r} is no path in a bucket: gs://BUCKET/RUN, without blanks, quotes "
            "and what a shell expands"
        )
    return "/".join(log_directory.split("/")[:3])


def advice(log_directory: str) -> str:
    """Why a path may not be found again by older tools, which keep it as a label; "" if fine."""
    path = log_directory.removeprefix("gs://")
    if len(log_directory) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    if path.count("/") >= MAX_LEVELS:
        return f"it has more than {MAX_LEVELS} levels"
    if path != path.lower():
        return "it has capital letters"
    return ""


def check_bucket(context: Context, log_directory: str) -> None:
    bucket = check_path(log_directory)
    words = ["gcloud", "storage", "buckets", "describe", bucket]
    try:
        context.runner.run(words, context.settings.command_seconds)
    except CommandFailed as error:
        raise RunwatchError(
            f"Log directory {log_directory} does not exist.\n{error.complaint}"
        ) from None
