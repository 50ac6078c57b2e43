"""`runwatch.compat.mldiagnostics.utils.jax_utils.jax_host`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.jax_utils.jax_host import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.jax_utils.jax_host

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.jax_utils.jax_host
