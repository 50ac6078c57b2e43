"""The accounts of runs, kept up as their records come in."""
