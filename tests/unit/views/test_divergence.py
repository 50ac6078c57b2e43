from __future__ import annotations

import math

import pytest

from runwatch.record import JournalId, RunId
from runwatch.rows import SeriesRow
from runwatch.views.divergence import Tail, divergences, is_loss

NAN, INF = math.nan, math.inf


def tail(metric: str = "loss", rank: int = 0, points: int = 50, after_good: bool = True,
         step: int | None = 150, value: float = NAN) -> Tail:  # fmt: skip
    row = SeriesRow(rank, JournalId("j"), RunId("r"), "host", rank, "", metric, "", {})
    return Tail(row, value, 1_700_000_000 * 10**9 + rank, step, points, after_good)


def texts(*tails: Tail, ranks: int = 1, going: bool = True) -> list[str]:
    ranks_of = {each.row.metric: set(range(ranks)) for each in tails}
    return [found.text for found in divergences(tails, ranks_of, going=going)]


@pytest.mark.parametrize(
    "metric",
    ["loss", "train/loss", "train_loss", "Loss", "trainLoss", "lm loss", "losses/policy",
     "val_loss", "aux.nll", "policy_loss", "contrastive-loss", "d_loss_real", "l1loss",
     "training.loss.mean"],
)  # fmt: skip
def test_names_of_losses(metric: str) -> None:
    assert is_loss(metric)


@pytest.mark.parametrize(
    "metric",
    ["grad_norm", "loss_scale", "amp/loss_scaler", "lossless_ratio", "packet_loss", "lr",
     "accuracy", "losses_count", "perplexity", "reward", "glossary", "frames_loss", ""],
)  # fmt: skip
def test_names_of_other_things(metric: str) -> None:
    assert not is_loss(metric)


def test_a_loss_that_stays_nan() -> None:
    assert texts(tail()) == ["loss is NaN since step 150"]
    assert texts(tail(value=-INF, step=1500)) == ["loss is infinite since step 1,500"]
    assert texts(tail(step=None)) == ["loss is NaN since 2023-11-14T22:13:20Z"]


def test_some_ranks_of_many_are_named() -> None:
    assert texts(tail(rank=3), ranks=8) == ["loss is NaN since step 150 on rank 3"]
    assert texts(tail(rank=3), tail(rank=5), ranks=8) == [
        "loss is NaN since step 150 on ranks 3, 5"
    ]
    assert texts(*(tail(rank=n) for n in range(4)), ranks=4) == ["loss is NaN since step 150"]
    many = texts(*(tail(rank=n) for n in range(7)), ranks=9)
    assert many == ["loss is NaN since step 150 on 7 ranks"]


@pytest.mark.parametrize("points", [1, 2])
def test_one_bad_batch_may_pass(points: int) -> None:
    """A loss scale that is sought skips such steps."""
    assert texts(tail(points=points)) == []
    assert texts(tail(points=points), going=False) == ["loss is NaN since step 150"]


@pytest.mark.parametrize("metric", ["val_loss", "eval/loss", "best_loss", "test_loss", "min_loss"])
def test_what_has_no_value_before_the_first_evaluation(metric: str) -> None:
    assert texts(tail(metric, points=500, after_good=False)) == []
    assert texts(tail(metric, points=500, after_good=False), going=False) == []
    assert texts(tail(metric, points=5)) == [f"{metric} is NaN since step 150"]


def test_a_training_loss_that_was_never_good_needs_more() -> None:
    assert texts(tail(points=9, after_good=False, step=0)) == []
    assert texts(tail(points=10, after_good=False, step=0)) == ["loss is NaN since step 0"]
    assert texts(tail(points=3, after_good=False, step=0), going=False)
