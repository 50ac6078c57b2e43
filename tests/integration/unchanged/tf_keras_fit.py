"""tf.keras: fit over a tf.data pipeline, with validation, TensorBoard and a checkpoint."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

tf.keras.utils.set_random_seed(7)
x = tf.random.normal((256, 8), seed=7)
y = tf.reduce_sum(x, axis=1, keepdims=True)
train = tf.data.Dataset.from_tensor_slices((x[:192], y[:192])).shuffle(192).batch(32).prefetch(1)
val = tf.data.Dataset.from_tensor_slices((x[192:], y[192:])).batch(32)
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)]
)
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
callbacks = [
    tf.keras.callbacks.TensorBoard(os.path.join(sys.argv[1], "logs"), update_freq="epoch"),
    tf.keras.callbacks.ModelCheckpoint(os.path.join(sys.argv[1], "best.keras")),
]
history = model.fit(train, validation_data=val, epochs=3, verbose=0, callbacks=callbacks)
print({name: [f"{value:.5f}" for value in values] for name, values in history.history.items()})
print([f"{value:.5f}" for value in model.evaluate(val, verbose=0)])
