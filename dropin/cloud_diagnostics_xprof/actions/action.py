"""What the verbs have in common."""

from runwatch.compat.xprofiler.actions import (
    Command,
    flag_from_string,
    flag_with_value_from_key_value,
    get_package_version,
)

__all__ = [
    "Command",
    "flag_from_string",
    "flag_with_value_from_key_value",
    "get_package_version",
]
