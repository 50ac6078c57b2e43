from __future__ import annotations

import copy
import json
import pickle

import pytest

from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.plain import plain


def test_every_change_is_told() -> None:
    config, told = ConfigDict(a=1), []
    config._listen(lambda: told.append(dict(config)))
    config["b"] = 2
    config.c = 3
    config.update({"d": 4}, e=5)
    config |= {"f": 6}
    config.setdefault("g", 7)
    config.setdefault("g", 8)
    del config["b"], config.c
    config.pop("d")
    assert config == {"a": 1, "e": 5, "f": 6, "g": 7}
    assert len(told) == 8
    assert told[-1] == config
    config.popitem()
    config.clear()
    assert told[-2:] == [{"a": 1, "e": 5, "f": 6}, {}]


def test_attributes_are_keys() -> None:
    config = ConfigDict(lr=0.1)
    assert config.lr == 0.1
    with pytest.raises(AttributeError, match="batch"):
        _ = config.batch
    with pytest.raises(AttributeError, match="batch"):
        del config.batch
    assert not hasattr(config, "batch")


def test_copies_do_not_record() -> None:
    config = ConfigDict(a=[1])
    config._listen(lambda: pytest.fail("a copy was recorded"))
    for twin in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        twin.b = 2
        assert twin == {"a": [1], "b": 2}


def test_anything_becomes_json() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    odd = {1: {2, 3}, "nan": float("nan"), "big": 2**80, "text": "\ud800", "loop": loop, None: b"x"}
    text = json.dumps(plain(odd), allow_nan=False)
    back = json.loads(text)
    assert back["nan"] == "nan"
    assert back["1"] == [2, 3]
    assert back["text"] == "?"
    assert back["None"] == "b'x'"
    assert int(back["big"], 16) == 2**80


def test_what_is_too_long_is_cut() -> None:
    cut = plain({"text": "x" * 10**6, "list": list(range(10**5))})
    assert len(json.dumps(cut)) < 100_000
