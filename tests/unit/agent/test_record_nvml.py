"""`scripts/record_nvml.py` records what the collectors ask: tried on a recording."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.agent.recorded_nvml import FOLDER, RecordedNvml

SCRIPT = Path(__file__).parents[3] / "scripts" / "record_nvml.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_nvml", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["h200-figures", "mig", "before-hopper"])
def test_a_recording_of_a_recording_is_the_same(
    script: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = RecordedNvml(name)
    # Counters need two samples that lie apart, by a clock that does not wait for us.
    monkeypatch.setattr("runwatch.agent.collectors.gpm.Pace.is_due", lambda self: True)
    listening = script.record(library, rounds=3, pause=lambda: None)
    found = script.document(listening, "a test")
    original = json.loads((FOLDER / f"{name}.json").read_text())["calls"]
    recorded = found["calls"]
    common = [key for key in recorded if key in original and "UUID" not in key]
    assert {key: recorded[key] for key in common} == {key: original[key] for key in common}
    assert set(recorded) - set(original) <= {"field 197 of gpu0", "field 198 of gpu0"} | {
        key for key in recorded if key.startswith("gpm ")
    }
    asked_of_shared_only = "nvmlDeviceGetProcessUtilization"
    missing = {key for key in set(original) - set(recorded) if asked_of_shared_only not in key}
    assert {key for key in missing if key.startswith("nvml")} == set()
    assert found["microseconds"]["nvmlDeviceGetMemoryInfo"] > 0


def test_uuids_are_replaced(script: ModuleType) -> None:
    listening = script.Listening(RecordedNvml("h200-figures"))
    real = "GPU-8a6b1c2d-1234-5678-9abc-def012345678"
    listening.calls = {"nvmlDeviceGetUUID(gpu0)": real, "other": real}
    found = script.document(listening, "")
    assert found["calls"]["nvmlDeviceGetUUID(gpu0)"] == found["calls"]["other"]
    assert "8a6b1c2d" not in json.dumps(found)
