"""A program that logs to wandb, offline."""

import os
import sys

os.environ.update(WANDB_MODE="offline", WANDB_DIR=sys.argv[1], WANDB_SILENT="true")
import wandb

run = wandb.init(project="quick", config={"lr": 0.1, "epochs": 5})
for epoch in range(run.config.epochs):
    wandb.log({"loss": 1 / (epoch + 1), "accuracy": 1 - 0.5**epoch})
run.summary["best"] = 0.2
wandb.finish()
print("finished")
