"""A plain loop in PyTorch: two epochs, an evaluation and a checkpoint after each."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Numbers(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(8), torch.tensor([index % 2.0])


class Slow:
    """What takes its time to be written, on any disk."""

    def __getstate__(self):
        time.sleep(0.06)
        return {}


network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1))
network.append(torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
training, testing = DataLoader(Numbers(), 4, shuffle=True), DataLoader(Numbers(), 8)

for epoch in range(2):
    network.train()
    for inputs, targets in training:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(inputs), targets)
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    network.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, targets in testing:
            total += torch.nn.functional.mse_loss(network(inputs), targets).item()
    print(f"epoch {epoch}: {loss.item()!r} {total!r}")
    torch.save({"network": network.state_dict(), "slow": Slow()}, f"{sys.argv[1]}/{epoch}.pt")
if "fail" in sys.argv:
    raise ValueError("the disk is full of cats")
