"""Callbacks, for programs that say what hooks would see.  Keras has its own test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runwatch.testing import Story
from tests.integration.hooked_programs import PROGRAMS, ran, spans, steps

SAID = {
    "hf_trainer": ("trainer = Trainer(", "hf", "loss", range(1, 13), 2),
    "lightning_fit": ("trainer = pl.Trainer(", "lightning", "train_loss", range(1, 17), 3),
}


@pytest.mark.soak
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("name", SAID)
def test_a_trainer_with_our_callback_tells_each_step_once(
    name: str, auto: bool, tmp_path: Path
) -> None:
    trainer, module, metric, numbers, evaluations = SAID[name]
    pytest.importorskip("transformers" if name == "hf_trainer" else "pytorch_lightning")
    text = (PROGRAMS / f"{name}.py").read_text()
    begun = (
        f"import runwatch\nfrom runwatch.callbacks.{module} import RunwatchCallback\n"
        f"runwatch.init('said', auto={auto})\n"
    )
    text = re.sub(re.escape(trainer), f"{begun}{trainer}callbacks=[RunwatchCallback()], ", text)
    done = ran(text, tmp_path, hooks=False, HF_HUB_OFFLINE="1")
    assert done.code == 0, done.err
    told: Story = done.story
    assert list(steps(told)) == list(numbers)
    assert max(n.step or 0 for n in told.numbers if n.metric == metric) == numbers[-1]
    assert spans(told, "evaluation") == evaluations
    assert told.bodies("warning") == []
