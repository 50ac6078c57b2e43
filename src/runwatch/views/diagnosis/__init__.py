"""What is wrong with a run, and who or what is to blame.  One question per file, all of it pure.

`progress.py` folds steps and spans and says whether a run stands still (`following.py` reads them
from batches, `usual.py` learns how long they take).  `frames.py` recognises what a thread waits for
(`patterns.py` is its table).
`hang.py` compares the stacks of the ranks and names the one that the others wait for: from
`evidence.py` (one rank) and `scene.py` (all of them) over `rules/` (who is to blame, one rule per
file) and `standing.py` (stuck, or at work) to `saying.py` (words).  `flight.py` reads the dumps of
torch's flight recorder, and `weighing.py` weighs them against the stacks.  Stacks come as the
plain dicts that `to_json` in `capture/` makes.  Asking for stacks, and when, is done in `head/`.
"""
