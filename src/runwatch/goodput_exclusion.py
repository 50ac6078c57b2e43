"""Goodput without some intervals, as `ml_goodput_measurement.goodput_exclusion` has it."""

from runwatch import exclusion_utils, goodput_utils
from runwatch.goodput.exclusions import GoodputExclusion
from runwatch.goodput.kinds import BadputType, UnproductiveTimeDict

__all__ = [
    "BadputType",
    "GoodputExclusion",
    "UnproductiveTimeDict",
    "exclusion_utils",
    "goodput_utils",
]
