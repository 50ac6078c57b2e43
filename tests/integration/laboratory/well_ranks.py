"""Jobs of four ranks that are well: one works while the others wait for it."""

from __future__ import annotations

from tests.integration.laboratory.case import Scene, Shelf
from tests.integration.laboratory.well import clock
from tests.integration.laboratory.well_tools import _model, _state, on_slow_disk

well = Shelf(hangs=False, world=4)


@well("rank 0 saves alone, the others are at a barrier")
def saves_alone(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == 0:
        torch.save(_state(), on_slow_disk(scene.seconds))
    dist.barrier()


@well("rank 0 evaluates alone, the others are at a barrier")
def evaluates_alone(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == 0:
        going, model = clock(scene), _model()
        while going():
            model(torch.randn(64, 256)).sum().item()
    dist.barrier()


@well("rank 3 loads data for long, the others are in all_reduce")
def loads_long(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == 3:
        going, draw = clock(scene), scene.draw
        while going():
            sorted(draw.random() for _ in range(50_000))
    dist.all_reduce(torch.ones(4))


@well("a long all_gather of a big model that gets on")
def gathers(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    going = clock(scene)
    mine, found = torch.ones(1 << 22), [torch.empty(1 << 22) for _ in range(scene.world)]
    more = torch.ones(1)
    while more.item():
        dist.all_gather(found, mine)
        more = torch.tensor([1.0 if going() else 0.0])
        dist.broadcast(more, 0)
