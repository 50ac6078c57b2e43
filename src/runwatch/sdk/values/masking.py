"""Masks secrets before they are recorded: a journal may be shipped, shared and kept for years.

Three places hold secrets: words of a command line, values with names, and free text.  A value is a
secret by its name (`api_key`, `--password`) or by its look (`hf_…`, a private key).  A number is
not a secret: `max_tokens=4096` stays.  `RUNWATCH_MASK` adds names: `pin,acme_*`.

Lines of a console come one by one (`LineMask`): a private key spans several of them, and a program
may print the value of a variable without its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from runwatch.sdk.values.plain import Json

MASK: Final = "***"
LEAST_VALUE: Final = 8
MOST_KEY_LINES: Final = 100

_SECRET_WORDS: Final = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "pw", "secret", "secrets", "credential"}
    | {"credentials", "apikey", "authorization", "bearer", "cookie", "dsn", "privatekey", "pat"}
)
_SECRET_PAIRS: Final = frozenset(
    (first, "key")
    for first in ("api", "access", "private", "account", "signing", "encryption", "license", "auth")
) | {("shared", "access"), ("connection", "string"), ("conn", "str")}
_NOT_BEHIND: Final = frozenset({"path", "file", "name", "id", "length", "len", "type", "policy"})
"""Last words that make a name harmless: `password_file` is a path, `access_key_id` is public."""
_TOKENIZERS: Final = frozenset(
    {"eos", "bos", "pad", "unk", "mask", "cls", "sep", "special", "image", "video", "audio"}
    | {"start", "end", "stop", "begin", "separator", "class", "text", "vision", "per", "next"}
    | {"first", "last"}
)
"""Words before `token` where a token is a piece of text."""

# A name starts where no name character comes before, and is matched possessively: so no text takes
# time quadratic in its length.
_NAME: Final = r"(?<![A-Za-z0-9_.\-])[A-Za-z0-9_.\-]++"
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LOOKS: Final = re.compile(
    r"""
    -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                          # Amazon
    | \bAIza[0-9A-Za-z_\-]{35}                               # Google
    | \bya29\.[0-9A-Za-z_\-]{20,}
    | \b(?:ghp|gho|ghu|ghs|ghr)_[0-9A-Za-z]{30,}             # GitHub
    | \bgithub_pat_[0-9A-Za-z_]{30,}
    | \bglpat-[0-9A-Za-z_\-]{20,}                            # GitLab
    | \bhf_[0-9A-Za-z]{30,}                                  # Hugging Face
    | \bsk-(?=[A-Za-z_\-]*[0-9])[0-9A-Za-z_\-]{20,}          # OpenAI, Anthropic
    | \bxox[abeoprs]-[0-9A-Za-z\-]{10,}                      # Slack
    | \bnpm_[0-9A-Za-z]{36}
    | \bpypi-[0-9A-Za-z_\-]{40,}
    | \bwandb_v[0-9]_[0-9A-Za-z_]{20,}
    | \beyJ[0-9A-Za-z_\-]{8,}\.eyJ[0-9A-Za-z_\-]{8,}\.[0-9A-Za-z_\-]*   # a JSON web token
    """,
    re.VERBOSE | re.DOTALL,
)
_LOOK_MARKS: Final = (
    "PRIVATE KEY", "AKIA", "ASIA", "AIza", "ya29.", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "hf_", "sk-", "xox", "npm_", "pypi-", "wandb_v", "eyJ",
)  # fmt: skip
_NAME_MARKS: Final = (
    "pass", "pwd", "pw", "secret", "credential", "key", "token", "auth", "bearer", "cookie", "dsn",
    "pat", "shared", "conn",
)  # fmt: skip
"""What has none of these has no secret: most lines are looked at no further, which saves 20 µs."""
_IN_URL: Final = re.compile(r"(?<=://)([^\s/?#:@'\"]*+:)[^\s/?#@'\"]++(?=@)")
_BEARER: Final = re.compile(
    r"\b(Bearer|Basic)(\s+)(?=\S{0,200}[0-9=])[0-9A-Za-z._~+/\-]{8,}=*", re.IGNORECASE
)
_NAMED: Final = re.compile(rf"""({_NAME})["']?\s*+(?:=|:(?!//))\s*+""")
_VALUE: Final = re.compile(
    r""""(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^'\\]|\\.)*+)'|(?P<bare>[^\s,;&"'()\[\]{}]++)""",
    re.DOTALL,
)
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_FLAG: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9_.\-]*")


def command_line(words: Iterable[str]) -> list[str]:
    """`--api-key X`, `--api-key=X`, `API_KEY=X` and `https://me:X@host` without their X."""
    return list(_command_line(words, more_names()))


def named_values(values: Mapping[str, Json]) -> dict[str, Json]:
    """A configuration or an environment without its secrets, however deep they lie."""
    more = more_names()
    return {name: _value(name, value, more) for name, value in values.items()}


def text(value: str) -> str:
    """An exception's text or a log line, without what looks like a secret or is called one."""
    return _text(value, more_names())


class LineMask:
    """Masks one line after the other of one stream, and knows the values of this environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._values = secret_values(os.environ if environment is None else environment)
        self._more = more_names()
        self._key_lines = 0
        """How many lines of a private key there may still be."""

    def __call__(self, line: str) -> str:
        if self._key_lines:
            self._key_lines = 0 if _KEY_ENDS.search(line) else self._key_lines - 1
            return MASK
        for value in self._values:
            if value in line:
                line = line.replace(value, MASK)
        if "PRIVATE KEY" in line and _KEY_BEGINS.search(line) and not _KEY_ENDS.search(line):
            self._key_lines = MOST_KEY_LINES
        return _text(line, self._more)


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables that are named like secrets; the longest first, as one may be in another.

    A short one may be a word of any text, and a path is no secret.
    """
    more = more_names()
    found = {
        value
        for name, value in environment.items()
        if len(value) >= LEAST_VALUE
        and is_secret(name, more)
        and not value.startswith(("/", "./", "~", "file:"))
        and not _is_plain(value)
    }
    return tuple(sorted(found, key=len, reverse=True))


def is_secret(name: str, more: tuple[str, ...] = ()) -> bool:
    """Whether a value of this name is a secret."""
    words = _words(name)
    if any(fnmatchcase(name.lower().lstrip("-").replace("-", "_"), pattern) for pattern in more):
        return True
    if not words or words[-1] in _NOT_BEHIND:
        return False
    if not _SECRET_WORDS.isdisjoint(words) or any(pair in _SECRET_PAIRS for pair in _pairs(words)):
        return True
    return words[-1] == "token" and _TOKENIZERS.isdisjoint(words)


def _command_line(words: Iterable[str], more: tuple[str, ...]) -> Iterator[str]:
    awaited = False
    for word in words:
        if awaited and not word.startswith("-"):
            yield MASK
            awaited = False
            continue
        awaited = _FLAG.fullmatch(word) is not None and is_secret(word, more)
        yield _text(word, more)


def _value(name: str, value: Json, more: tuple[str, ...]) -> Json:
    if isinstance(value, str):
        return MASK if value and is_secret(name, more) else _text(value, more)
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value) and not is_secret(name, more):
            return [*_command_line((str(item) for item in value), more)]
        return [_value(name, item, more) for item in value]
    if isinstance(value, dict):
        return {inner: _value(_inner(name, inner, more), v, more) for inner, v in value.items()}
    return value


def _inner(outer: str, inner: str, more: tuple[str, ...]) -> str:
    """`{"secrets": {"a": …}}`: everything inside a secret is a secret."""
    return outer if is_secret(outer, more) else inner


def _text(value: str, more: tuple[str, ...]) -> str:
    if any(mark in value for mark in _LOOK_MARKS):
        value = _LOOKS.sub(MASK, value)
    if "://" in value:
        value = _IN_URL.sub(rf"\1{MASK}", value)
    lower = value.lower()
    if "bearer" in lower or "basic" in lower:
        value = _BEARER.sub(rf"\1\2{MASK}", value)
    if "=" not in value and ":" not in value:
        return value
    if not more and not any(mark in lower for mark in _NAME_MARKS):
        return value
    return "".join(_without_named(value, more))


def _without_named(line: str, more: tuple[str, ...]) -> Iterator[str]:
    """Masks `name=value` and `name: value`, quoted or not, where the name says it is a secret."""
    done = 0
    for named in _NAMED.finditer(line):
        if named.end() < done or not is_secret(named[1], more):
            continue
        value = _VALUE.match(line, named.end())
        if value is None or value.lastgroup is None or _is_plain(value[value.lastgroup]):
            continue
        yield line[done : value.start(value.lastgroup)] + MASK
        done = value.end(value.lastgroup)
    yield line[done:]


def _is_plain(value: str) -> bool:
    """A number, a word of a programming language, or already masked."""
    if value in ("", "None", "none", "null", "True", "False", "true", "false", MASK):
        return True
    return value.lower() in ("bearer", "basic") or value.replace(".", "", 1).isdigit()


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


def _pairs(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return zip(words, words[1:], strict=False)


@lru_cache(maxsize=1)
def more_names() -> tuple[str, ...]:
    """Read once: `os.environ` swallows a KeyError that a signal handler raises during a lookup."""
    setting = os.environ.get("RUNWATCH_MASK", "")
    return tuple(part.strip().lower() for part in setting.split(",") if part.strip())
