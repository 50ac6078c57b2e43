"""TensorFlow: a loop of one's own with GradientTape, and tf.summary."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

tf.keras.utils.set_random_seed(7)
x = tf.random.normal((128, 8), seed=7)
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.05)
train_loss = tf.keras.metrics.Mean("train_loss")


@tf.function
def train_step(inputs, targets):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_loss(loss)
    return loss


checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, os.path.join(sys.argv[1], "ckpt"), max_to_keep=2)
writer = tf.summary.create_file_writer(os.path.join(sys.argv[1], "logs"))
step = 0
with writer.as_default():
    for epoch in range(3):
        train_loss.reset_state()
        for inputs, targets in data:
            loss = train_step(inputs, targets)
            tf.summary.scalar("loss", loss, step=step)
            step += 1
        tf.summary.scalar("epoch_loss", train_loss.result(), step=epoch)
        manager.save()
print(f"{float(loss):.6f}", int(optimizer.iterations))
