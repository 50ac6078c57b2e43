"""DeepSpeed's pipeline on the CPU: two stages, four micro-batches for each update."""

import sys

import deepspeed
import torch
from deepspeed.pipe import PipelineModule

deepspeed.init_distributed(dist_backend="gloo", verbose=False)
torch.manual_seed(7)
x = torch.randn(256, 8)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
layers = [torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4,
    "steps_per_print": 1000,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "csv_monitor": {"enabled": True, "output_path": sys.argv[-1], "job_name": "csv"},
}
engine, _, _, _ = deepspeed.initialize(
    model=PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss),
    training_data=data,
    config=config,
)
for _ in range(5):
    loss = engine.train_batch()
if engine.global_rank == 0:
    print(f"{loss.item():.6f} after {engine.global_steps} updates")
torch.distributed.destroy_process_group()
