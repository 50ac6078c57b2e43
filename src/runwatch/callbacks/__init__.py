"""Callbacks for trainers, for programs that prefer to say it: one file per framework.

Each imports its framework.  They tell the current run what `init(auto=True)` would tell it, and
nothing where that does so already.
"""
