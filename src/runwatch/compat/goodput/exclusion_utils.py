"""Intervals to leave out, as `ml_goodput_measurement.exclusion_utils` has them."""

from runwatch.compat.goodput.calculator.exclusions import get_exclusion_overlap, normalize_intervals

__all__ = ["get_exclusion_overlap", "normalize_intervals"]
