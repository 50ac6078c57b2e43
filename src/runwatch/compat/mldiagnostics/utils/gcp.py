"""What Google's metadata service says of this machine; elsewhere everything is None, at once."""

from __future__ import annotations

import re
from typing import Final

from runwatch.compat.goodput.goodput_utils import get_gcp_metadata
from runwatch.compat.mldiagnostics.custom_types.regions import validate_region

__all__ = [
    "get_instance_attribute",
    "get_instance_metadata",
    "get_instance_region",
    "get_instance_zone",
    "get_project_id",
    "get_tpu_accelerator_type",
    "validate_region",
]

_TPU_LINE: Final = re.compile(
    r"\s*(?:ACCELERATOR_TYPE|TPU_ACCELERATOR_TYPE|TPU_TYPE)\s*:\s*['\"]?([^'\"\s]+)"
)


def get_project_id(timeout: int = 5) -> str | None:
    return get_gcp_metadata("project", "project-id", timeout)


def get_instance_metadata(path: str, timeout: int = 5) -> str | None:
    return get_gcp_metadata("instance", path, timeout)


def get_instance_attribute(attribute_name: str, timeout: int = 5) -> str | None:
    return get_instance_metadata(f"attributes/{attribute_name}", timeout)


def get_instance_zone(timeout: int = 5) -> str | None:
    """`us-central1-a`."""
    zone = get_instance_metadata("zone", timeout)
    return zone.rpartition("/")[2] if zone else None


def get_instance_region(timeout: int = 5) -> str | None:
    """`us-central1`."""
    return (get_instance_zone(timeout) or "").rpartition("-")[0] or None


def get_tpu_accelerator_type(timeout: int = 5) -> str | None:
    given = get_instance_attribute("accelerator-type", timeout)
    if given:
        return given.rpartition("/")[2]
    for line in (get_instance_attribute("tpu-env", timeout) or "").splitlines():
        if found := _TPU_LINE.match(line):
            return found[1]
    machine = (get_instance_metadata("machine-type", timeout) or "").rpartition("/")[2]
    return machine if "tpu" in machine else None
