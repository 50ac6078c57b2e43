"""Ranks on Gloo: an all-reduce of gradients by hand; each rank prints."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimiser = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(20):
    loss = (model(torch.randn(8, 4)) ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimiser.step()
if rank == 0:
    torch.save(model.state_dict(), os.path.join(sys.argv[1], "last.pt"))
sys.stdout.write(f"rank {rank}: {sum(p.sum().item() for p in model.parameters()):.7f}\n")
sys.stdout.flush()
dist.destroy_process_group()
