"""Series, curves, exports."""
