from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from runwatch.sdk import collect


def test_software_names_only_what_is_imported(tmp_path: Path) -> None:
    modules = cast(Any, {"torch": SimpleNamespace(__version__="2.9.0"), "jax": SimpleNamespace()})
    environment = {"XLA_FLAGS": "--a", "NCCL_DEBUG": "INFO", "SECRET_TOKEN": "x", "PATH": "/bin"}
    found = collect.software(environment=environment, modules=modules, directory=tmp_path)
    assert found["versions"] == {"torch": "2.9.0"}
    assert found["environment"] == {"NCCL_DEBUG": "INFO", "XLA_FLAGS": "--a"}
    assert "git_commit" not in found


def test_the_commit_is_read_from_files(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n" + "a" * 40 + " refs/heads/main\n")
    inside = tmp_path / "src/deep"
    inside.mkdir(parents=True)
    assert collect.git_commit(inside) == "a" * 40
    (git / "refs/heads/main").write_text("b" * 40 + "\n")
    assert collect.git_commit(inside) == "b" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert collect.git_commit(inside) == "c" * 40


def test_the_commit_of_a_worktree(tmp_path: Path) -> None:
    main = tmp_path / "main/.git"
    private = main / "worktrees/w"
    private.mkdir(parents=True)
    (private / "HEAD").write_text("ref: refs/heads/topic")
    (private / "commondir").write_text("../..\n")
    (main / "refs/heads").mkdir(parents=True)
    (main / "refs/heads/topic").write_text("d" * 40)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {private}\n")
    assert collect.git_commit(tree) == "d" * 40


def test_the_machine(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    gpu = proc / "driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    cgroup.mkdir()
    (gpu / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 5\n")
    (proc / "meminfo").write_text("MemTotal:       1024 kB\nMemFree: 1 kB\n")
    (cgroup / "memory.max").write_text("4096\n")
    found = collect.system(proc=proc, cgroup=cgroup)
    assert found["gpus"] == ["NVIDIA H200"]
    assert found["memory_bytes"] == 1024 * 1024
    assert found["cgroup_memory_limit_bytes"] == 4096


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    found = collect.system(proc=tmp_path, cgroup=tmp_path)
    assert not {"memory_bytes", "cgroup_memory_limit_bytes", "gpus"} & set(found)
    assert None not in found.values()


def test_whose_run_it_is(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"

    def user(**environment: str) -> str:
        return collect.user(environment=environment, passwd=passwd)

    assert user() == ""
    passwd.write_text(f"root:x:99999:\nodd line\nada:x:{os.getuid()}:0::/home/ada:/bin/sh\n")
    assert user() == "ada"
    assert user(USER="bob") == "bob"
    assert user(USER="root", SLURM_JOB_USER="eve") == "eve"
    assert user(USER="root", SLURM_JOB_USER="eve", RUNWATCH_USER="ada ") == "ada"
