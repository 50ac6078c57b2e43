"""The operator's part that tells of pods, as a process that is told what to do and may be killed.

    python -m tests.integration.operator_pods.teller DIR SERVER ACCOUNT HEAD TOKEN INGEST_TOKEN_FILE

A line on its input is a pod to look at; each is answered with a line, when its records are in the
journal.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from runwatch.errors import RunwatchError
from runwatch.k8s.api import Access, Api
from runwatch.k8s.operator.head import Head
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.telling import Telling
from tests.integration.operator_pods.site import look


async def main(directory: str, server: str, account: str, *head: str) -> None:
    address, token, ingest = head
    settings = OperatorSettings(
        head=address,
        token=token,
        ingest_token_file=Path(ingest),
        dir=Path(directory),
        runs_seconds=0.05,
        retry_seconds=0.3,
    )
    async with (
        Api(Access(server, Path(account))) as api,
        Head(settings) as asked,
        Telling(api, asked, settings) as telling,
    ):
        while pod := (await asyncio.to_thread(sys.stdin.readline)).strip():
            try:
                await look(telling, pod)
                print("told", telling.told, flush=True)
            except RunwatchError as error:
                print(error, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
