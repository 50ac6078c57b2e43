"""The original's clients of Google's services, under their names.

They send nothing: what is written through them is recorded in the current run, and what is asked of
them is answered from it.
"""
