"""DeepSpeed on the CPU: two batches for each update, CSV monitor, checkpoints."""

import os
import sys

import deepspeed
import torch

torch.manual_seed(7)
x = torch.randn(128, 8)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "steps_per_print": 1000,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": int(os.environ.get("STAGE", "1"))},
    "csv_monitor": {"enabled": True, "output_path": sys.argv[-1], "job_name": "csv"},
}
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=data, config=config
)
for epoch in range(2):
    for inputs, targets in loader:
        inputs, targets = inputs.to(engine.device), targets.to(engine.device)
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(os.path.join(sys.argv[-1], "saved"), tag=f"epoch{epoch}")
engine.load_checkpoint(os.path.join(sys.argv[-1], "saved"), tag="epoch1")
if engine.global_rank == 0:
    print(f"{loss.item():.6f} after {engine.global_steps} updates")
torch.distributed.destroy_process_group()
