"""What kind of file system a journal lies on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        "9p", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "wekafs",
        "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs",
    )
)  # fmt: skip


def is_network_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether other hosts may see `path`, and see its pages in any order."""
    best, kind = "", ""
    try:
        target = str(path.resolve())
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ").rstrip("/")
        if f"{target}/".startswith(f"{mount}/") and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind in _NETWORK_FILE_SYSTEMS
