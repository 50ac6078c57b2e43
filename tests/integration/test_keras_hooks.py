"""Keras trains as it did, and the run has its steps, metrics, epochs, phases and checkpoints."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from runwatch.record import BEGIN, END
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program

pytestmark = pytest.mark.skipif(find_spec("keras") is None, reason="keras is not installed")

# Importing Keras and its backend takes longest: one process trains without us, with hooks, and
# with our callback.
PROGRAM = """
import os, time
import keras, numpy, runwatch
from runwatch.callbacks.keras import RunwatchCallback

numbers = numpy.random.default_rng(0)
x = numbers.random((96, 4), dtype="float32")
y = (x.sum(1) > 2).astype("float32")

class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        time.sleep(0.03)
        return x[:32], y[:32]

def train(*callbacks):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    checkpoint = keras.callbacks.ModelCheckpoint(os.environ["WORK"] + "/m.weights.h5",
                                                 save_weights_only=True)
    history = model.fit(x, y, batch_size=32, epochs=2, validation_data=(x[:32], y[:32]),
                        verbose=0, callbacks=[checkpoint, *callbacks]).history
    tested = model.evaluate(x, y, verbose=0, callbacks=[*callbacks])
    model.fit(x, y, batch_size=32, epochs=3, initial_epoch=2, verbose=0, callbacks=[*callbacks])
    return model, history, tested

before = vars(keras.callbacks.CallbackList)["on_epoch_end"]
_, *plain = train()
with runwatch.init("hooked", auto=True):
    model, *hooked = train()
    model.fit(Slow(), epochs=1, verbose=0)
assert vars(keras.callbacks.CallbackList)["on_epoch_end"] is before
with runwatch.init("called back"):
    _, *called_back = train(RunwatchCallback())
with runwatch.init("both", auto=True):
    train(RunwatchCallback())
assert plain == hooked == called_back, (plain, hooked, called_back)
print(plain[0]["val_loss"])
"""


def told(backend: str, place: Path) -> list[Story]:
    done = run_program(
        PROGRAM,
        place,
        KERAS_BACKEND=backend,
        WORK=str(place.parent),
        KERAS_HOME=str(place.parent / "keras"),
        CUDA_VISIBLE_DEVICES="",
        JAX_PLATFORMS="cpu",
    )
    assert done.returncode == 0, done.stderr
    return read_stories(place)


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.soak)])
def test_keras_trains_as_it_did_and_we_know_of_it(backend: str, tmp_path: Path) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    hooked, called_back, both = told(backend, tmp_path / "records")
    expected = list(range(9))
    for story in (hooked, called_back, both):
        steps = [e.step for e in story.edges if e.name == "step" and e.edge == END]
        assert steps[:9] == expected, story.scopes[0].name
        # A value that its device was still computing is written a moment later.
        assert sorted(step or 0 for step in story.steps("loss"))[:9] == expected
        assert (story.steps("val_loss"), story.steps("epoch")[:3]) == ([2, 5], [2, 5, 8])
        assert story.steps("test_loss") == [5]
        evaluations = [e for e in story.edges if e.name == "evaluation" and e.edge == BEGIN]
        assert len(evaluations) == 3
        assert not [what for what in story.warnings if "Keras" in what]
    saves = [e for e in hooked.edges if e.name == "checkpoint_save" and e.edge == BEGIN]
    assert len(saves) == 2
    assert [e.step for e in both.edges if e.name == "step" and e.edge == END] == expected
    # Another training in the same run counts on, and its waits for data are there.
    assert hooked.steps("loss")[9:] == [9, 10, 11]
    if backend == "jax":
        waits = [b for b in hooked.bodies("elapsed") if b["name"] == "data_loading"]
        assert sum(body["seconds"] for body in waits) > 0.02
