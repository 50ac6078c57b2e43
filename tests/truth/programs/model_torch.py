"""A small network in PyTorch, as big as makes a step of some tens of milliseconds on a CPU."""

from __future__ import annotations

import torch

WIDTH, ROWS, LAYERS = 320, 512, 4

torch.set_num_threads(1)  # several wait for one another where other programs run


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def batch(rows: int = ROWS) -> torch.Tensor:
    return torch.ones(rows, WIDTH)


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = model(batch)
    return (output**2).mean()
