"""`runwatch.compat.mldiagnostics.utils.torch_utils.torch_config`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.torch_utils.torch_config import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.torch_utils.torch_config

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.torch_utils.torch_config
