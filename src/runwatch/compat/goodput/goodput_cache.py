"""What a calculator keeps between questions, as `ml_goodput_measurement.goodput_cache` has it."""

from runwatch.compat.goodput import goodput_utils
from runwatch.compat.goodput.calculator.cache import GoodputCache
from runwatch.compat.goodput.kinds import GoodputInfo, StepInfo

__all__ = ["GoodputCache", "GoodputInfo", "StepInfo", "goodput_utils"]
