"""Secrets are masked, and what only looks like one is left alone."""

from __future__ import annotations

import pytest

from runwatch.sdk.values.masking import (
    MASK,
    command_line,
    is_secret,
    more_names,
    named_values,
    text,
)
from runwatch.sdk.values.plain import Json

HF = "hf_" + "aB3" * 12
GITHUB = "ghp_" + "x9Y" * 12
WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (["--password=hunter2"], [f"--password={MASK}"]),
        (["--password", "hunter2"], ["--password", MASK]),
        (["--api-key", "k-1", "--lr", "1e-4"], ["--api-key", MASK, "--lr", "1e-4"]),
        (["-api_key", "k-1"], ["-api_key", MASK]),
        (["--hub_token", "abc"], ["--hub_token", MASK]),
        (["--wandbApiKey=abc"], [f"--wandbApiKey={MASK}"]),
        (["trainer.secret=abc", "model.width=64"], [f"trainer.secret={MASK}", "model.width=64"]),
        (["https://me:s3cret@host/x"], [f"https://me:{MASK}@host/x"]),
        (["postgresql://u:p%40ss@db:5432/x?y=1"], [f"postgresql://u:{MASK}@db:5432/x?y=1"]),
        (["https://:onlyapassword@host/"], [f"https://:{MASK}@host/"]),
        (["https://host/f?token=abcd&page=2"], [f"https://host/f?token={MASK}&page=2"]),
        ([HF], [MASK]),
        ([f"--extra=key:{HF}"], [f"--extra=key:{MASK}"]),
        (['{"password": "a b", "lr": 1}'], [f'{{"password": "{MASK}", "lr": 1}}']),
        (["-H", "Authorization: Bearer abcdefgh12"], ["-H", f"Authorization: Bearer {MASK}"]),
        (
            ["a=b", "PASSWORD='x y'", "--note=password=abc"],
            ["a=b", f"PASSWORD='{MASK}'", f"--note=password={MASK}"],
        ),
    ],
)
def test_a_command_line_shows_no_secret(words: list[str], recorded: list[str]) -> None:
    assert command_line(words) == recorded


@pytest.mark.parametrize(
    "words",
    [
        [
            "train.py",
            "--lr=1e-4",
            "--max-tokens",
            "4096",
            "--tokenizer",
            "gpt2",
            "--token-dropout=0.1",
        ],
        ["--eos_token", "</s>", "--pad_token=<pad>", "--image-token", "<image>"],
        ["--num-key-value-heads=8", "--author", "Jane", "--sort_key=name", "--monkey=1"],
        ["--password-file", "/run/secrets/pw", "--api-key-file=/etc/key", "--secret-name", "train"],
        ["gs://bucket/run:7/x@3", "http://host:8080/a@b", "git@host:team/repo.git", "a:b"],
        ["--tokens_per_batch", "64", "--attention=flash", "--passes=3", "--compass", "n"],
        ["--password", "--verbose"],
        ["-m", "torch.distributed.run", "--rdzv-id=7", "--rdzv_endpoint=host:29500"],
    ],
)
def test_a_command_line_keeps_what_is_none(words: list[str]) -> None:
    assert command_line(words) == words


def test_values_with_names_are_masked_at_any_depth() -> None:
    config: dict[str, Json] = {
        "lr": 1e-4,
        "max_tokens": 4096,
        "token": 7,
        "wandb": {"api_key": "0123456789abcdef", "project": "llama"},
        "secrets": {"a": "one", "b": ["two", 3]},
        "stores": [{"url": "s3://bucket", "secret_access_key": "abc/def"}],
        "empty_password": "",
        "note": f"started with {HF}",
        "command": ["curl", "--oauth2-bearer", "x", "--token", "abc"],
    }
    assert named_values(config) == {
        "lr": 1e-4,
        "max_tokens": 4096,
        "token": 7,
        "wandb": {"api_key": MASK, "project": "llama"},
        "secrets": {"a": MASK, "b": [MASK, 3]},
        "stores": [{"url": "s3://bucket", "secret_access_key": MASK}],
        "empty_password": "",
        "note": f"started with {MASK}",
        "command": ["curl", "--oauth2-bearer", MASK, "--token", MASK],
    }


@pytest.mark.parametrize(
    "secret",
    [HF, GITHUB, WEB_TOKEN, PEM, "AKIA" + "ABCD" * 4, "AIza" + "abcde" * 7, "glpat-" + "a1" * 12]
    + ["sk-" + "proj_9" * 5, "xoxb-12345678901-abcdef", "npm_" + "q" * 36, "ya29." + "a0" * 20],
)
def test_a_secret_is_known_by_its_look(secret: str) -> None:
    said = text(f"cannot log in with {secret}, try again")
    assert said == f"cannot log in with {MASK}, try again"


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ("login failed: password='a b c' user='me'", f"login failed: password='{MASK}' user='me'"),
        ('KeyError: {"api_key": "abc"}', f'KeyError: {{"api_key": "{MASK}"}}'),
        ("401 for https://x:y@host/z", f"401 for https://x:{MASK}@host/z"),
        ("AccountName=a;AccountKey=abc+/=;x=1", f"AccountName=a;AccountKey={MASK};x=1"),
        ("got Bearer abcdefgh12.x", f"got Bearer {MASK}"),
    ],
)
def test_free_text_shows_no_secret(said: str, recorded: str) -> None:
    assert text(said) == recorded


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "KeyError: 'layers.0.attention.key.weight'",
        "ValueError: token id 50257 is out of range: eos_token=</s>, pad_token=None",
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567 at 12:30:01",
        "FileNotFoundError: password_file=/run/secrets/pw",
        "password is wrong", "token: None", "max_token=3",
        "sk-learn-contrib-and-a-lot-more is too old", "Basic tutorials", "Bearer of bad news",
        "the sha is da39a3ee5e6b4b0d3255bfef95601890afd80709",
    ],
)  # fmt: skip
def test_free_text_keeps_what_is_none(said: str) -> None:
    assert text(said) == said


def test_a_site_names_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_line(["--acme-pin", "1234"]) == ["--acme-pin", "1234"]
    monkeypatch.setenv("RUNWATCH_MASK", " acme*, badge ")
    more_names.cache_clear()
    try:
        assert command_line(["--acme-pin", "1234"]) == ["--acme-pin", MASK]
        assert named_values({"badge": "b7", "badges": "b7"}) == {"badge": MASK, "badges": "b7"}
    finally:
        more_names.cache_clear()


def test_masking_twice_is_masking_once() -> None:
    said = f"password=abc token: {GITHUB} https://a:b@c {PEM}"
    assert text(text(said)) == text(said)
    assert is_secret("apiKey") and is_secret("AWS_SECRET_ACCESS_KEY") and not is_secret("keyboard")


def test_long_texts_are_masked_in_time_that_grows_with_their_length() -> None:
    """Each of these takes minutes where a pattern looks back; the suite's time limit tells."""
    for piece in (
        "a.",
        "a",
        "a:",
        "a=",
        "://a:",
        "x-",
        '"',
        "password=",
        "-----BEGIN PRIVATE KEY-----",
    ):
        assert isinstance(text(piece * 25_000), str)
