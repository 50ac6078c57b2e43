"""The guide of ml-goodput-measurement, as it stands.  (Its calls in a program of ours are in
test_goodput_dropin.py, and run everywhere.)
"""

from __future__ import annotations

import json
from pathlib import Path

from runwatch.testing import read_stories
from tests.integration.sdk_programs import program_environment
from tests.integration.standins import StandIns
from tests.seeds import Block, blocks, mended, run_blocks, run_shell, with_document

SEED = "002"
AROUND = """
import datetime, enum, time, types
from collections.abc import Sequence
import numpy as np
from ml_goodput_measurement import goodput_utils

jax = types.SimpleNamespace(process_index=lambda: 0)
config = types.SimpleNamespace(run_name="guide", steps=6, monitor_goodput=True,
                               tensorboard_dir="board", goodput_upload_interval_seconds=60)
start_step = 0
logger_name = "goodput_guide"

def load_next_batch(iterator, batch, config):
    time.sleep(0.002)

def convert_pst_to_utc(text):
    zone = datetime.timezone(datetime.timedelta(hours=-8))
    hour = text.split()[1].zfill(8)
    return datetime.datetime.fromisoformat(text.split()[0] + " " + hour).replace(tzinfo=zone)
"""
"""What the examples take for granted."""
TRAIN = "main([])"
THEN = """
from ml_goodput_measurement import goodput as module
begin = datetime.datetime(2024, 12, 16, 12, tzinfo=datetime.timezone.utc)
recorder = module.GoodputRecorder("then", "goodput_then", True)
recorder.record_job_start_time(begin)
for step in range(5):
    recorder.record_step_start_time(step, begin + datetime.timedelta(hours=step))
goodput_calculator = module.GoodputCalculator(job_name="then", logger_name="goodput_then")
"""
"""A job of the time that the window's example asks for."""
STOP = """
goodput_monitor.stop_goodput_uploader()
goodput_monitor.stop_step_deviation_uploader()
goodput_monitor.stop_goodput_interval_uploader()
"""
KINDS = """
import json
from ml_goodput_measurement.goodput_utils import BadputType as ours
print(json.dumps(sorted({kind.name for kind in BadputType} - {kind.name for kind in ours})))
"""


def before(block: Block) -> str:
    return THEN if "get_job_goodput_interval" in block.text else ""


def after(block: Block) -> str:
    if "class BadputType" in block.text:
        return KINDS
    if "start_goodput_uploader" in block.text:
        return "started = goodput_monitor"
    if "load_next_batch" in block.text:
        return TRAIN
    return ""


@with_document(SEED)
def test_every_example_of_the_document_runs(tmp_path: Path) -> None:
    found = [b for b in blocks(SEED) if b.language == "python"]
    assert len(found) == 21
    parts = [("what is taken for granted", AROUND)]
    for block in found:
        text = mended(block.text, "data_iterator = example_batch = None")
        parts += [(f"before block {block.number}", before(block)), (f"block {block.number}", text)]
        parts.append((f"after block {block.number}", after(block)))
    parts.append(("the end", STOP + STOP.replace("goodput_monitor", "started")))
    place = tmp_path / "runwatch"
    done = run_blocks(parts, program_environment(place, NO_GCE_CHECK="true"), tmp_path)
    assert done.stderr == ""
    total, missing, *told = done.stdout.splitlines()
    assert 0 < float(total.rpartition(" ")[2].rstrip("%")) <= 100
    assert json.loads(missing) == []
    assert len(told) == 10 and told[0].endswith(" 5")
    stories = {story.scopes[0].name: story for story in read_stories(place)}
    assert sorted(stories) == ["guide", "then"]
    assert stories["guide"].warnings == {}
    assert (tmp_path / "board" / "goodput").is_dir()


@with_document(SEED)
def test_every_command_line_of_the_document_runs(tmp_path: Path) -> None:
    standins = StandIns(tmp_path / "standins", "pip")
    for block in blocks(SEED):
        if block.language == "bash":
            run_shell(block.text, standins, tmp_path)
    assert standins.calls("pip") == [["install", "ml-goodput-measurement"]]
    assert {block.language for block in blocks(SEED)} == {"bash", "python"}
