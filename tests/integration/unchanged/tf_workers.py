"""TensorFlow: two workers of a MultiWorkerMirroredStrategy, started by this program."""

import json
import os
import socket
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def launch():
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    workers = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        command = [sys.executable, __file__, sys.argv[1]]
        workers.append(subprocess.Popen(command, env={**os.environ, "TF_CONFIG": config}))
    return max(worker.wait() for worker in workers)


def train():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(7)
    x = tf.random.normal((128, 8), seed=7)
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)
    batches = strategy.experimental_distribute_dataset(batches)
    with strategy.scope():
        weight = tf.Variable(tf.zeros((8, 1)))

    def replica_step(batch):
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(inputs @ weight - targets))
        gradient = tape.gradient(loss, weight)
        context = tf.distribute.get_replica_context()
        weight.assign_sub(0.05 * context.all_reduce("mean", gradient))
        return loss

    @tf.function
    def train_step(batch):
        return strategy.reduce("mean", strategy.run(replica_step, args=(batch,)), axis=None)

    index = strategy.cluster_resolver.task_id
    writer = tf.summary.create_file_writer(os.path.join(sys.argv[1], f"logs{index}"))
    iterator = iter(batches)
    with writer.as_default():
        for step in range(10):
            tf.summary.scalar("loss", train_step(next(iterator)), step=step)
    if index == 0:
        print(f"{float(tf.reduce_sum(weight.read_value())):.5f}")


if "TF_CONFIG" in os.environ:
    train()
else:
    sys.exit(launch())
