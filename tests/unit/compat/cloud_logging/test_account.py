"""Where Google's libraries would find credentials, we leave them to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.compat.cloud_logging.account import may_have_account

NOT_THERE = {"NO_GCE_CHECK": "true"}


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert not may_have_account({"HOME": str(tmp_path), **NOT_THERE})
    assert not may_have_account({"HOME": str(tmp_path), "CLOUDSDK_CONFIG": "", **NOT_THERE})


@pytest.mark.parametrize(
    "variable", ["GOOGLE_APPLICATION_CREDENTIALS", "APPENGINE_RUNTIME", "GCE_METADATA_ROOT"]
)
def test_a_variable_names_one(variable: str, tmp_path: Path) -> None:
    assert may_have_account({"HOME": str(tmp_path), variable: "/k.json", **NOT_THERE})
    assert not may_have_account({"HOME": str(tmp_path), variable: "", **NOT_THERE})


def test_gcloud_has_one(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").touch()
    assert may_have_account({"HOME": str(tmp_path), **NOT_THERE})
    assert may_have_account({"HOME": "/", "CLOUDSDK_CONFIG": str(folder), **NOT_THERE})
    elsewhere = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)}
    assert not may_have_account({**elsewhere, **NOT_THERE})


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    assert may_have_account({"HOME": str(tmp_path), "RUNWATCH_CLOUD_LOGGING": "off", **NOT_THERE})
