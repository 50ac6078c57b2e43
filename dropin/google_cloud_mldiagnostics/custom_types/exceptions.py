"""`runwatch.compat.mldiagnostics.custom_types.exceptions`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.custom_types.exceptions import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.custom_types.exceptions

    sys.modules[__name__] = runwatch.compat.mldiagnostics.custom_types.exceptions
