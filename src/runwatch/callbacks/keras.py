"""`model.fit(…, callbacks=[RunwatchCallback()])`: steps, metrics, epochs, evaluation of Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from runwatch.sdk.front import current_run
from runwatch.sdk.guard import guarded, tally
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.trainers.keras import Fit, listening


class RunwatchCallback(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Tells the run of `runwatch.init`, which comes first."""

    def __init__(self) -> None:
        super().__init__()
        self._fit: Fit | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._note(Fit.on_train_begin)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._note(Fit.on_epoch_begin, epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._note(Fit.on_train_batch_begin)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._note(Fit.on_train_batch_end, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note(Fit.on_epoch_end, epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._note(Fit.on_train_end)

    def on_test_begin(self, logs: Any = None) -> None:
        self._note(Fit.on_test_begin)

    def on_test_end(self, logs: Any = None) -> None:
        self._note(Fit.on_test_end, logs)

    @guarded("note what Keras does")
    def _note(self, what: Callable[..., None], *said: Any) -> None:
        run = current_run()
        if run is None:
            tally.count("no run", "there is no run: call runwatch.init() first")
            return
        tell: Teller = run._hooks._tell
        if tell in listening:
            return
        if self._fit is None or self._fit.tell is not tell:
            self._fit = Fit(tell)
        params = self.params if isinstance(self.params, Mapping) else {}
        what(self._fit, params, *said)
