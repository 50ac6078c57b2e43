"""Ray Train: two workers on the CPU, each epoch reported, with a checkpoint."""

import os
import sys
import tempfile

import ray
import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def train_loop_per_worker(config):
    torch.manual_seed(7)
    x = torch.randn(128, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    batches = prepare_data_loader(DataLoader(data, batch_size=16, shuffle=True))
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    rank = ray.train.get_context().get_world_rank()
    for epoch in range(config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            batches.sampler.set_epoch(epoch)
        for inputs, targets in batches:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics = {"loss": loss.item(), "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
trainer = TorchTrainer(
    train_loop_per_worker,
    train_loop_config={"lr": 0.05, "epochs": 3},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    run_config=RunConfig(storage_path=os.path.abspath(sys.argv[1]), name="trained"),
)
result = trainer.fit()
print(f"loss {result.metrics['loss']:.6f} in epoch {result.metrics['epoch']}")
print("checkpoint", os.path.exists(os.path.join(result.checkpoint.path, "model.pt")))
ray.shutdown()
