"""What a calculator keeps between questions, as `ml_goodput_measurement.goodput_cache` has it."""

from runwatch import goodput_utils
from runwatch.goodput.cache import GoodputCache
from runwatch.goodput.kinds import GoodputInfo, StepInfo

__all__ = ["GoodputCache", "GoodputInfo", "StepInfo", "goodput_utils"]
