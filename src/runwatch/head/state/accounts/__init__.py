"""The accounts of runs, kept up as their records come in.

`accounts.py` is the door: a route asks `Accounts.of` for an account, and the writer's thread tells
`Accounts.stored` of every batch.  `fold.py` is one run's account, `saved.py` what outlives the
head, `devices.py` what accelerators add.

One thread (`worker.py`) does what no caller waits to do itself.  Its jobs, the most urgent first:

    somebody waits for a run        Accounts.wait       waiters.py: who, and for how long still
    the list lacks a run's goodput  GoodputKeeper.want  notes.py
    a run has many new records      Accounts.stored     arrivals.py: which runs
    an account holds too many records that are not folded yet     Accounts.stored
    an account has grown since it was saved                       Accounts.of

A job works in slices (`slices.py`) of one stretch of records, and the next slice goes to the most
urgent job.  So the first account of a long run does not hold up the others.
"""
