"""How we learn what frameworks do: one file each, one line each in `HOOKS` or `AUTO_HOOKS`.

Those of `HOOKS` tell what a framework spends time on.  They are set for every run when the program
has imported the framework, before `init` or after (the keeper looks once a second), and removed by
`finish`.  Those of `AUTO_HOOKS` tell steps, metrics and phases too.  They are set where the
program asks for them, or where nobody changed the program (`sdk/auto.py`).

Nothing of a framework is imported here.  A wrapped function keeps its results, signature and
exceptions; `$RUNWATCH_HOOKS=off` leaves everything alone.  `install.py` sets and removes hooks; all
of them use `teller.py`, and `loop.py` makes steps of what they tell.
"""

from __future__ import annotations

from typing import Final

HOOKS: Final = (
    # The module that must have been imported, and the file here with its `install`.
    ("torch", "checkpoint_torch"),
    ("torch.distributed.checkpoint", "checkpoint_dcp"),
    ("orbax.checkpoint", "checkpoint_orbax"),
    ("safetensors.torch", "checkpoint_safetensors"),
    ("torch", "compile_torch"),
    ("tensorflow", "checkpoint_tensorflow"),
    ("jax", "compile_jax"),
)

AUTO_HOOKS: Final = (
    ("torch", "torch.optim"),
    ("torch.utils.data.dataloader", "torch.loader"),
    ("torch.distributed", "torch.ranks"),
    ("transformers.trainer", "trainers.transformers"),
    ("accelerate.accelerator", "trainers.accelerate"),
    ("pytorch_lightning.trainer.trainer", "trainers.lightning"),
    ("lightning.pytorch.trainer.trainer", "trainers.lightning"),
    ("deepspeed", "trainers.deepspeed"),
    ("keras", "trainers.keras"),
    ("ray.train", "trainers.ray_train"),
    ("ray.tune.tuner", "trainers.ray_driver"),
    ("ray.train.v2.api.data_parallel_trainer", "trainers.ray_driver"),
    ("ray.train._internal.session", "trainers.ray_worker"),
    ("ray.train.v2._internal.execution.worker_group.worker", "trainers.ray_worker"),
    ("jax", "jax_steps"),
    ("grain._src.python.data_loader", "loader_grain"),
    ("orbax.checkpoint", "numbered"),
    ("wandb", "loggers.wandb"),
    ("torch.utils.tensorboard", "loggers.tensorboard"),
    ("tensorboard.summary", "loggers.tensorboard_own"),
    ("tensorboardX", "loggers.tensorboardx"),
    ("tensorflow", "loggers.tensorflow"),
    ("mlflow.tracking.client", "loggers.mlflow"),
    ("trackio", "loggers.trackio"),
)
