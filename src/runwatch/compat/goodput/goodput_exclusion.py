"""Goodput without some intervals, as `ml_goodput_measurement.goodput_exclusion` has it."""

from runwatch.compat.goodput import exclusion_utils, goodput_utils
from runwatch.compat.goodput.calculator.exclusions import GoodputExclusion
from runwatch.compat.goodput.kinds import BadputType, UnproductiveTimeDict

__all__ = [
    "BadputType",
    "GoodputExclusion",
    "UnproductiveTimeDict",
    "exclusion_utils",
    "goodput_utils",
]
