"""What crosses the network between an agent and a head.

`spine.proto` is the contract (`spine_pb2*.py` are generated from it: `make proto`), `convert.py`
turns records into messages and back; `gswarm.proto` is what gswarm-profiler's clients
speak, `profiler.proto` what the profiler servers of JAX and TensorFlow do.  Who sends and who
listens is in `ship/` and `head/`.
"""
