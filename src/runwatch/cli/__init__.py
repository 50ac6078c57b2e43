"""The command line: one command per file; the file's docstring is its help.

A command parses its arguments, asks, and prints.  The HTTP application of the head answers: over
the network if a head runs, else in this process, from the store in the directory.
"""
