"""Ray Train without torch: a worker fails, and both are started again from the last checkpoint.

With `always` it fails again.
"""

import os
import sys
import tempfile
import time

import ray
import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train_loop_per_worker(config):
    rank, first = ray.train.get_context().get_world_rank(), 0
    kept = ray.train.get_checkpoint()
    if kept is not None:
        with kept.as_directory() as folder, open(os.path.join(folder, "epoch")) as file:
            first = int(file.read()) + 1
    for epoch in range(first, 4):
        time.sleep(0.1)
        if rank == 1 and epoch == 2 and (first == 0 or config["fails"]):
            raise ValueError("no such batch")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as file:
                file.write(str(epoch))
            ray.train.report({"accuracy": epoch / 4}, Checkpoint.from_directory(folder))


ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
trainer = DataParallelTrainer(
    train_loop_per_worker,
    train_loop_config={"fails": "always" in sys.argv},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    run_config=RunConfig(
        storage_path=os.path.abspath(sys.argv[-1]),
        name="trained",
        failure_config=FailureConfig(max_failures=1),
    ),
)
result = trainer.fit()
print("accuracy", result.metrics["accuracy"])
ray.shutdown()
