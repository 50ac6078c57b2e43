"""Whether this process may have an account of Google's cloud, found out within a moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.compat.goodput.goodput_utils import get_gcp_metadata
from runwatch.sdk.switches import is_off

SWITCH: Final = "RUNWATCH_CLOUD_LOGGING"
"""off: `google.cloud.logging` is left alone."""
_VARIABLES: Final = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "APPENGINE_RUNTIME",
    "GCE_METADATA_ROOT",
)
_FILE: Final = "application_default_credentials.json"


def may_have_account(environment: Mapping[str, str] = os.environ) -> bool:
    """As Google's libraries look for one: a file that is named, gcloud's own, or the machine's."""
    if is_off(SWITCH, environment) or any(environment.get(name) for name in _VARIABLES):
        return True
    folder = environment.get("CLOUDSDK_CONFIG")
    home = Path(environment.get("HOME") or "~").expanduser()
    if (Path(folder) if folder else home / ".config" / "gcloud").joinpath(_FILE).exists():
        return True
    if environment.get("NO_GCE_CHECK") == "true":
        return False
    # Known at once elsewhere than on Google's machines, and there the service is on the same one.
    return get_gcp_metadata("instance", "service-accounts/default/email", retries=1) is not None
