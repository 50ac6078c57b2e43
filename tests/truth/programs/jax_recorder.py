"""Written for ml-goodput-measurement: it says when steps begin, and reads every tenth loss."""

import datetime
import time

from ml_goodput_measurement import goodput
from model_jax import batch, train_step, weights
from observed import Observed, steps

NAME = "jax_recorder"

state, data = weights(), batch()
recorder = goodput.GoodputRecorder(job_name=NAME, logger_name=NAME, logging_enabled=True)
recorder.record_job_start_time(datetime.datetime.now())
truth = Observed()
recorder.record_training_preparation_start_time()
step = truth.device(train_step)
recorder.record_training_preparation_end_time()
for number in range(steps()):
    recorder.record_data_loading_start_time()
    with truth.doing("data_loading"):
        time.sleep(0.002)
    recorder.record_data_loading_end_time()
    recorder.record_step_start_time(number)
    state, loss = step(state, data)
    if number % 10 == 9:
        print(number, float(loss))
print("at the end", float(loss))
recorder.record_job_end_time(datetime.datetime.now())
truth.stop()
calculator = goodput.GoodputCalculator(job_name=NAME, logger_name=NAME)
account = calculator.get_account()
truth.close(dropin=account.goodput)
