"""The command line: one command per file, whose docstring is its help.

A command parses, asks, prints.  Answers come from the same HTTP application that a head serves:
over the network when a head runs, in this process over the directory's own store when none does.
"""
