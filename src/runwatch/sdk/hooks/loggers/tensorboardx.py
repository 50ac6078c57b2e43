"""tensorboardX, whose writer has the shape of PyTorch's."""

from __future__ import annotations

import sys

from runwatch.sdk.hooks.loggers.tensorboard import summary_writer
from runwatch.sdk.hooks.teller import Teller


def install(tell: Teller) -> None:
    summary_writer(tell, "tensorboardX", sys.modules["tensorboardX"])
