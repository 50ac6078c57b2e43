"""The steps of a run: recorded rank by rank, brought together, judged."""
