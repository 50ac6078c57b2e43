"""Serve a directory of profiles: a list of them, and XProf and Perfetto to open them.

DIR holds profiles as JAX, XProf and TensorBoard store them (…/plugins/profile/NAME/), or traces as
torch.profiler writes them.  A URL (s3://, gs://, anything that fsspec knows) is first copied to a
temporary directory; new files there are copied every half minute.

example:
  runwatch host /tmp/tensorboard
  runwatch host gs://bucket/profiles --port 8500 --base-path /team/profiles
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from runwatch import logs
from runwatch.cli.head_options import json_option, print_ready, token_options
from runwatch.cli.pictures.progress import progress
from runwatch.errors import NotFound
from runwatch.settings import load


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("where", metavar="DIR|URL", help="directory or URL of the profiles")
    parser.add_argument(
        "--port", "--http-port", type=int, dest="http_port", help="default 8090; 0 = any free one"
    )
    parser.add_argument("--bind", help="address to listen on (default 127.0.0.1)")
    token_options(parser)
    parser.add_argument("--base-path", help="path under which a proxy serves it: /team/x")
    json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    from runwatch.address import Listening
    from runwatch.head.access.main_token import users_token
    from runwatch.head.main import Head
    from runwatch.head.settings import HeadSettings

    def ready(at: Listening) -> None:
        token = f"?token={at.token}" if at.token else ""
        if arguments.json:
            print_ready(at, profiles=f"{at.http}/viewers/{token}")
            return
        print(f"Profiles of {arguments.where}: {at.http}/viewers/{token}", flush=True)
        print("Stop it with Ctrl-C.", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="runwatch-host-") as scratch,
        _local(arguments.where, Path(scratch)) as place,
    ):
        flags = {"dir": scratch, "profiles": place, "grpc_port": -1}
        settings = load(HeadSettings, section="head", flags=vars(arguments) | flags).values
        if (
            not settings.token
        ):  # the directory is temporary: with the user's token, links stay valid
            settings = replace(settings, token=users_token())
        # The server raises this signal again once it has stopped: exit by an exception, so that
        # the temporary directory is removed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        logs.spare()
        Head(settings).run(ready)
    return 0


@contextmanager
def _local(where: str, scratch: Path) -> Iterator[Path]:
    """The directory itself, or a copy of the URL that is kept up to date."""
    from runwatch.head.features.profiles.mirror import Mirror

    if "://" in where and not where.startswith("file://"):
        with ExitStack() as stack:
            with progress(f"copying {where}"):
                mirror = stack.enter_context(Mirror(where, scratch / "mirror"))
            yield mirror.folder
        return
    place = Path(where.removeprefix("file://")).expanduser()
    if not place.is_dir():
        raise NotFound(f"no such directory: {place}")
    yield place
