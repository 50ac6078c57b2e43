"""Settings of the webhook: what is wrong is said with the value and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runwatch.errors import UsageError
from runwatch.k8s.counted import Counted
from runwatch.k8s.settings import WebhookSettings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mode": "daemon"}, r"'daemon': use node, sidecar, none"),
        ({"directory": "records"}, "'records'"),
        ({"directory": "/"}, "'/'"),
        ({"seconds": 5.0}, "below 5"),
        ({"seconds": 0.0}, "above 0"),
        ({"leave_seconds": 31.0}, "0 to 20"),
        ({"certificate": Path("c.pem")}, "name both"),
        ({"key": Path("k.pem")}, "name both"),
        ({"head": "http://head:8090/?token=rwt_0123"}, "runwatch-ingest"),
        ({"head": "http://me:secret@head:8090"}, "runwatch-ingest"),
        ({"head": "ftp://head"}, "ftp"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        WebhookSettings(**wrong)


def test_a_heads_token_is_in_no_message() -> None:
    with pytest.raises(UsageError) as raised:
        WebhookSettings(head="http://head:8090/?token=rwt_secret")
    assert "rwt_secret" not in str(raised.value)


def test_prometheus_reads_what_became_of_pods() -> None:
    counted = Counted()
    for outcome, seconds in (("injected", 0.004), ("injected", 0.3), ("late", 9.0)):
        counted.add(outcome, seconds)
    lines = counted.text(certificate_until=1_800_000_000.4).splitlines()
    assert 'runwatch_webhook_reviews_total{outcome="injected"} 2' in lines
    assert 'runwatch_webhook_review_seconds_bucket{le="0.005"} 1' in lines
    assert 'runwatch_webhook_review_seconds_bucket{le="0.5"} 2' in lines
    assert 'runwatch_webhook_review_seconds_bucket{le="+Inf"} 3' in lines
    assert "runwatch_webhook_review_seconds_sum 9.304000" in lines
    assert lines[-1].endswith(" 1800000000")
