"""The HTTP API's contract: what a small head answers to every question that the API has.

`world.py` is that head, `questions.py` asks it, `recorded.py` knows the files in
`tests/fixtures/http`.  `python -m tests.contract` (`make contract`) records what is new.
"""
