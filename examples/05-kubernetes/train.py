"""A plain PyTorch program, in one process or in many.  It does not know Runwatch, nor Kubernetes.

`python train.py` trains alone; where WORLD_SIZE says more than one (torchrun sets it, and so does
the controller of a PyTorchJob), all ranks train one model.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
is_one_of_many = int(os.environ.get("WORLD_SIZE", "1")) > 1
if is_one_of_many:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank() if is_one_of_many else 0
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(rank)
x = torch.randn(3200, 16)
data = DataLoader(TensorDataset(x, x @ torch.arange(16.0)), batch_size=32, shuffle=True)
model: torch.nn.Module = torch.nn.Sequential(
    torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
).to(device)
if is_one_of_many:
    model = DistributedDataParallel(model)
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(epochs):
    for inputs, wanted in data:
        loss = ((model(inputs.to(device)).squeeze(1) - wanted.to(device)) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"rank {rank}, epoch {epoch}: loss {loss.item():.4f}", flush=True)

if is_one_of_many:
    dist.destroy_process_group()
