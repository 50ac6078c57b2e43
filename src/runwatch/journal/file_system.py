"""What kind of file system a journal lies on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_NETWORK: Final = frozenset(
    (
        "9p", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "wekafs",
        "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs",
    )
)  # fmt: skip

_WRITES_IN_PLACE: Final = frozenset(("ext2", "ext3", "ext4", "ramfs", "tmpfs"))
_OF_ONE_KERNEL: Final = _WRITES_IN_PLACE | {"bcachefs", "btrfs", "f2fs", "jfs", "xfs", "zfs"}
MOUNTS: Final = Path("/proc/self/mounts")


def is_network_file_system(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether other hosts may see `path`, with its pages arriving in any order."""
    return kind_of(path, mounts) in _NETWORK


def is_only_ours(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether only this kernel writes there; False if we cannot tell."""
    return kind_of(path, mounts) in _OF_ONE_KERNEL


def may_be_mapped(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether a store to a page of an allocated file always succeeds.

    Not where the file system copies a block before writing it (btrfs, XFS with reflinks, ZFS,
    bcachefs), and not where a device, a server or a program may refuse the write.  So only file
    systems known to be safe count.  The one below an overlay cannot be seen from a container.
    """
    return kind_of(path, mounts) in _WRITES_IN_PLACE


def kind_of(path: Path, mounts: Path = MOUNTS) -> str:
    """The file system's type as the kernel names it; "" if we cannot tell."""
    best, kind = "", ""
    try:
        target = str(path.resolve())
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ").rstrip("/")
        if f"{target}/".startswith(f"{mount}/") and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind
