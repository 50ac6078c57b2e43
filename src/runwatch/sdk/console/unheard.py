"""A console that nobody listens to: most programs'."""

from __future__ import annotations


class Unheard:
    """What a run asks of its console; `wrapping.Listening` does it."""

    def tick(self) -> None:
        """About every second."""

    def flush(self) -> None:
        """Everything so far: the end may be near."""

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""

    def stop(self) -> None:
        """The run ends."""
