"""`runwatch.compat.mldiagnostics.utils.jax_utils.jax_config`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.jax_utils.jax_config import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.jax_utils.jax_config

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.jax_utils.jax_config
