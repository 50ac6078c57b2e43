"""A plain PyTorch program.  It does not know Runwatch."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
x = torch.randn(6400, 16)
data = DataLoader(TensorDataset(x, x @ torch.arange(16.0)), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(5):
    model.train()
    for inputs, wanted in data:
        loss = ((model(inputs).squeeze(1) - wanted) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        far = max(float((model(a).squeeze(1) - b).abs().max()) for a, b in data)
    print(f"epoch {epoch}: loss {loss.item():.4f}, off by at most {far:.2f}")
