"""The distributions whose names the drop-ins answer to."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from typing import Final

DROPIN: Final = "runwatch-dropin"
KEYWORD: Final = "runwatch-stand-in"
"""In the metadata of a stand-in, and in no original's."""


@dataclass(frozen=True, slots=True)
class Original:
    """`version`: the generation that ours is like; `package`: of the drop-in, what answers to it.
    `extras`: words that may stand in brackets after its name."""

    distribution: str
    version: str
    package: str
    extras: tuple[str, ...] = ()


ORIGINALS: Final = (
    Original("google-cloud-mldiagnostics", "1.0.10", "google_cloud_mldiagnostics", ("otel",)),
    Original("ml-goodput-measurement", "0.2.3", "ml_goodput_measurement", ("test",)),
    Original("cloud-tpu-diagnostics", "0.1.5", "cloud_tpu_diagnostics"),
    Original("cloud-diagnostics-xprof", "0.1.1", "cloud_diagnostics_xprof"),
    Original("gswarm", "0.4.3", "gsprof", ("dev", "vllm")),  # its commands: nobody imports it
)


@dataclass(frozen=True, slots=True)
class Installed:
    """What is installed under an original's name."""

    name: str
    version: str
    stand_in: bool


def installed(original: Original) -> Installed | None:
    try:
        found = Distribution.from_name(original.distribution)
    except PackageNotFoundError:
        return None
    about = found.metadata
    stand_in = "Keywords" in about and KEYWORD in about["Keywords"]
    return Installed(original.distribution, found.version or "", stand_in)
