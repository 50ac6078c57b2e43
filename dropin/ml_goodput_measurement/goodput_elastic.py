"""`runwatch.compat.goodput.goodput_elastic`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.goodput_elastic import *  # noqa: F403
else:
    import runwatch.compat.goodput.goodput_elastic

    sys.modules[__name__] = runwatch.compat.goodput.goodput_elastic
