"""Keras on PyTorch: fit, with validation and a checkpoint."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.default_rng(7).normal(size=(256, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
kept = keras.callbacks.ModelCheckpoint(
    os.path.join(sys.argv[1], "best.weights.h5"), save_weights_only=True
)
history = model.fit(
    x, y, batch_size=32, epochs=2, validation_split=0.25, verbose=0, callbacks=[kept]
)
print({name: [f"{value:.7f}" for value in values] for name, values in history.history.items()})
