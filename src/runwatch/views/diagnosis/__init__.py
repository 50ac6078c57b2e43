"""What is wrong with a run, and who or what is to blame.  One question per file, all of it pure.

`progress.py` folds steps and spans and says whether a run stands still (`following.py` reads them
from batches); `frames.py` recognises what a thread waits for (`patterns.py` is its table);
`hang.py` compares the ranks' stacks and names the odd one out: from `evidence.py` (one rank) over
`scene.py` (all of them) and `blame.py` (the rules) to `saying.py` (words); `flight.py` reads what
torch's flight recorder dumps.  Stacks come as the plain dicts that `to_json` in `capture/` makes.
Whoever asks for stacks, and when, lives in `head/`.
"""
