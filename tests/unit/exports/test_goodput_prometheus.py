from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from runwatch.exports.prometheus import HeadMetrics, RunGoodput
from runwatch.store.store import StoreHealth

HEALTH = StoreHealth("duckdb", 1, 0, 0, 0)


def samples(*runs: RunGoodput) -> dict[tuple[str, tuple[str, ...]], float]:
    text = HeadMetrics(lambda: HEALTH, goodput=lambda: runs).text().decode()
    return {
        (sample.name, tuple(sample.labels[k] for k in ("run", "class") if k in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "goodput" in family.name or "run" in sample.labels
    }


def test_what_is_known_of_each_run() -> None:
    found = samples(
        RunGoodput("a", 0.75, {"productive": 30.0, "custom:my \"eval\"": 10.0}, 2, 0.5),
        RunGoodput("b", 1.0, {"productive": 1.0}, ettr=0.5, device_hours={"productive": 8.0}),
    )  # fmt: skip
    assert found == {
        ("runwatch_goodput_ratio", ("a",)): 0.75,
        ("runwatch_goodput_ratio", ("b",)): 1.0,
        ("runwatch_spent_seconds", ("a", "productive")): 30.0,
        ("runwatch_spent_seconds", ("a", 'custom:my "eval"')): 10.0,
        ("runwatch_spent_seconds", ("b", "productive")): 1.0,
        ("runwatch_ettr_ratio", ("b",)): 0.5,
        ("runwatch_device_hours", ("b", "productive")): 8.0,
        ("runwatch_ideal_step_seconds", ("a",)): 0.5,
        ("runwatch_disruptions_total", ("a",)): 2.0,
        ("runwatch_disruptions_total", ("b",)): 0.0,
    }


def test_absent_is_not_zero() -> None:
    assert samples() == {}
    found = samples(RunGoodput("a", None))
    assert found == {("runwatch_disruptions_total", ("a",)): 0.0}
