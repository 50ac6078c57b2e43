"""What a command is called, and which commands a person works in."""

from __future__ import annotations

import pytest

from runwatch.launcher.naming import name_of, needs_terminal


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 0.1", "train"),
        ("/usr/bin/python3.12 -u -X dev ./src/train.py other.py", "train"),
        ("python -m package.train --lr 1", "package.train"),
        ("python -m package.__main__", "package"),
        ("python -c pass", "python"),
        ("python", "python"),
        ("torchrun --nproc-per-node 8 --nnodes 2 pre-train.py --config x.yaml", "pre-train"),
        ("torchrun -m package.train", "package.train"),
        ("python -m torch.distributed.run --standalone train.py", "train"),
        ("accelerate launch --num_processes 4 x.py", "x"),
        ("deepspeed --include localhost:0,1 x.py --deepspeed ds.json", "x"),
        ("mpirun -np 4 python train.py", "train"),
        ("bash run.sh", "run"),
        ("bash -c 'echo hi'", "bash"),
        ("./run.sh --fast", "run"),
        ("./train", "train"),
        ("env A=1 python train.py", "train"),
        ("uv run train.py", "train"),
        ("/", "/"),
    ],
)
def test_a_command_is_called_like_its_script(command: str, name: str) -> None:
    assert name_of(command.split()) == (name if name != "/" else "run")


@pytest.mark.parametrize("command", ["bash", "bash -i", "/bin/zsh -l", "vim x", "less", "nvitop"])
def test_people_work_in_these(command: str) -> None:
    assert needs_terminal(command.split())


@pytest.mark.parametrize("command", ["bash run.sh", "bash -c x", "python", "torchrun x.py"])
def test_these_only_write(command: str) -> None:
    assert not needs_terminal(command.split())
