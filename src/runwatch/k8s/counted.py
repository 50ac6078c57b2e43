"""The webhook's own numbers, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

BOUNDS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Counted:
    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self._slower: Counter[float] = Counter()
        self._seconds = 0.0

    def add(self, outcome: str, seconds: float) -> None:
        self.outcomes[outcome] += 1
        self._seconds += seconds
        self._slower.update(bound for bound in BOUNDS_SECONDS if seconds <= bound)

    def text(self, *, certificate_until: float | None = None) -> str:
        return "\n".join((*self._lines(certificate_until), ""))

    def _lines(self, certificate_until: float | None) -> Iterator[str]:
        reviews, seconds = "runwatch_webhook_reviews_total", "runwatch_webhook_review_seconds"
        yield f"# HELP {reviews} Pods that the API server asked about, by what became of them."
        yield f"# TYPE {reviews} counter"
        for outcome, number in sorted(self.outcomes.items()):
            yield f'{reviews}{{outcome="{outcome}"}} {number}'
        yield f"# HELP {seconds} How long an answer took."
        yield f"# TYPE {seconds} histogram"
        for bound in BOUNDS_SECONDS:
            yield f'{seconds}_bucket{{le="{bound:g}"}} {self._slower[bound]}'
        total = self.outcomes.total()
        yield f'{seconds}_bucket{{le="+Inf"}} {total}'
        yield f"{seconds}_sum {self._seconds:.6f}"
        yield f"{seconds}_count {total}"
        if certificate_until is not None:
            name = "runwatch_webhook_certificate_expires_timestamp_seconds"
            yield f"# HELP {name} When the certificate that is served expires."
            yield f"# TYPE {name} gauge"
            yield f"{name} {certificate_until:.0f}"
