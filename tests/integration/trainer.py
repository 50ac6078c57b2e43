"""A training loop for the crash trials; see processes.Trainer."""

import mmap
import sys
import time

import runwatch
from runwatch.compat.mldiagnostics import metrics


def main(run: str, counter: str, hertz: float, count: int, api: str) -> None:
    runwatch.init(run)
    with open(counter, "r+b") as file:
        # One store of eight bytes: `struct.pack_into` clears them first, and a kill may come then.
        returned = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
    begin, period = time.perf_counter(), 1 / hertz if hertz else 0.0
    log, record = runwatch.log, metrics.record
    for number in range(count):
        if api == "log":
            log(value=float(number), step=number)
        else:
            record("value", float(number), step=number)
        returned[0] = number + 1
        if period and (wait := begin + (number + 1) * period - time.perf_counter()) > 0:
            time.sleep(wait)
    runwatch.finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
