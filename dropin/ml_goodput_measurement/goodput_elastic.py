"""`runwatch.goodput_elastic`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.goodput_elastic import *  # noqa: F403
else:
    import runwatch.goodput_elastic

    sys.modules[__name__] = runwatch.goodput_elastic
