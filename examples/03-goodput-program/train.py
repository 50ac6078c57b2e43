"""A program written for ml-goodput-measurement, not changed for Runwatch."""

import datetime
import time

from ml_goodput_measurement import goodput

RUN_NAME = "goodput-program"
LOGGER_NAME = f"goodput_{RUN_NAME}"
STEPS = 60


def train(recorder: goodput.GoodputRecorder) -> None:
    recorder.record_tpu_init_start_time()
    time.sleep(0.02)
    recorder.record_tpu_init_end_time()
    recorder.record_training_preparation_start_time()
    time.sleep(0.05)
    recorder.record_training_preparation_end_time()

    for step in range(STEPS):
        recorder.record_data_loading_start_time()
        time.sleep(0.001)
        recorder.record_data_loading_end_time()
        recorder.record_step_start_time(step)
        time.sleep(0.1 if step == 0 else 0.01)  # the first step compiles
        if step == 40:
            recorder.record_custom_badput_event_start_time(custom_badput_event_type="evaluation")
            time.sleep(0.05)
            recorder.record_custom_badput_event_end_time(custom_badput_event_type="evaluation")


def report() -> None:
    calculator = goodput.GoodputCalculator(job_name=RUN_NAME, logger_name=LOGGER_NAME)
    productive, badput, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
    print(f"Last step recorded: {last_step}")
    print(f"Goodput: {productive:.1f}%")
    for kind, percent in badput.items():
        if isinstance(percent, dict):
            for name, part in percent.items():
                print(f"  {kind.name} {name}: {part:.1f}%")
        elif percent:
            print(f"  {kind.name}: {percent:.1f}%")


def main() -> None:
    recorder = goodput.GoodputRecorder(
        job_name=RUN_NAME, logger_name=LOGGER_NAME, logging_enabled=True
    )
    recorder.record_job_start_time(datetime.datetime.now())
    train(recorder)
    recorder.record_job_end_time(datetime.datetime.now())
    recorder.flush()
    report()


if __name__ == "__main__":
    main()
