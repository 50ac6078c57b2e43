"""`runwatch.compat.mldiagnostics.utils.torch_utils.torch_host`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.torch_utils.torch_host import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.torch_utils.torch_host

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.torch_utils.torch_host
