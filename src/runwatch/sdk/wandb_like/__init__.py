"""For programs that say `import runwatch as wandb`: wandb's names, over a Runwatch run.

`start.py` reads the arguments of `init`; `run.py` is the run (rows that count up, the summary);
`calls.py` has the functions of the module; `media.py` what people log that is no number.
None of this is loaded by a program that does not use it.
"""
