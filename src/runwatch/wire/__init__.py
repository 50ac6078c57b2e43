"""The messages between an agent and a head.

`spine.proto` is the contract (`spine_pb2*.py` are generated from it: `make proto`).  `convert.py`
turns records into messages and back.  `gswarm.proto` is the protocol of gswarm-profiler's clients,
`profiler.proto` that of the profiler servers of JAX and TensorFlow.  The senders are in `ship/`,
the receivers in `head/`.
"""
