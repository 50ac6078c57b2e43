"""The steps of a run, rank by rank: told, brought together, judged."""
