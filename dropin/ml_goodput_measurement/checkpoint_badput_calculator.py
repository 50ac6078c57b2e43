"""`runwatch.compat.goodput.checkpoint_badput_calculator`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.checkpoint_badput_calculator import *  # noqa: F403
else:
    import runwatch.compat.goodput.checkpoint_badput_calculator

    sys.modules[__name__] = runwatch.compat.goodput.checkpoint_badput_calculator
