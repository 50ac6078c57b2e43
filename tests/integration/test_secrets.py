"""A program full of secrets records none of them: not one byte on the disk."""

from __future__ import annotations

from pathlib import Path

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

SECRETS = (
    "hunter2",
    "k-99-secret",
    "pw4url",
    "nested-pw",
    "said-pw",
    "nccl-pw",
    "badge-77",
    "in-a-line",
)
PROGRAM = """
    import sys
    sys.argv = ["train.py", "--password=hunter2", "--api-key", "k-99-secret", "--lr", "1e-4"]
    sys.argv += ["https://me:pw4url@host/data", "--badge", "badge-77"]
    import runwatch
    config = {"lr": 1e-4, "store": {"secret_access_key": "nested-pw"}, "tokenizer": "gpt2"}
    run = runwatch.init("secretive", config=config)
    run.log(note="connecting with password=in-a-line")
    run.config.update(password="nested-pw")
    raise ConnectionError("cannot reach https://me:said-pw@host/data")
"""


def test_no_secret_reaches_the_journal(tmp_path: Path) -> None:
    extra = {"NCCL_PLUGIN_PASSWORD": "nccl-pw", "NCCL_DEBUG": "INFO", "RUNWATCH_MASK": "badge"}
    assert run_program(PROGRAM, tmp_path, **extra).returncode == 1
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [secret for secret in SECRETS if secret.encode() in written] == []
    (story,) = read_stories(tmp_path)
    (start,) = story.bodies("run_start")
    assert start["argv"][4:6] == ["--lr", "1e-4"]
    assert story.config("user")["tokenizer"] == "gpt2"
    assert story.config("software")["environment"]["NCCL_DEBUG"] == "INFO"
    assert story.end["exception"] == "ConnectionError: cannot reach https://me:***@host/data"
