"""`runwatch.checkpoint_badput_calculator`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.checkpoint_badput_calculator import *  # noqa: F403
else:
    import runwatch.checkpoint_badput_calculator

    sys.modules[__name__] = runwatch.checkpoint_badput_calculator
