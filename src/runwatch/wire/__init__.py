"""What crosses the network between an agent and a head.

`spine.proto` is the contract (`spine_pb2*.py` are generated from it: `make proto`), `convert.py`
turns records into messages and back; `gswarm.proto` is what gswarm-profiler's clients
speak.  Who sends and who listens is in `ship/` and `head/`.
"""
