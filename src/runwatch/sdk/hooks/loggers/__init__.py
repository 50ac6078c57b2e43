"""What a program logs anyway: wandb, TensorBoard, MLflow and Trackio go on as they did, and the
run gets the same numbers, on the logger's own step axis.

One file per logger.  `logged.py` is what they share: which values are numbers, and whose a name is
when two loggers use it.  A value is told after the logger has taken it, so what the logger refuses
is not recorded.  Trainers that log through these (Lightning, Hugging Face) are covered by that.
"""
