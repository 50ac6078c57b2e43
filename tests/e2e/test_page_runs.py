"""The list of runs and their comparison, in a real browser."""

from __future__ import annotations

import pytest

from tests.e2e.browsing import Visitor, needs_browser, needs_page

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
NAMES = ".scroller tbody tr:not([aria-hidden]) .name a"
COMPARED = "compare?runs=run-llama,run-bert"


@pytest.fixture
def runs(page: Visitor) -> Visitor:
    page.go()
    page.see(f"document.querySelectorAll('{NAMES}').length === 3")
    return page


def names(runs: Visitor, *expected: str) -> None:
    wanted = " ".join(expected)
    runs.see(
        f"[...document.querySelectorAll('{NAMES}')].map(e => e.innerText).join(' ') === '{wanted}'"
    )


def pick_metric(page: Visitor, metric: str, opener: str) -> None:
    """In the list that `opener` opens: find it by typing, and tick it."""
    page.click_text(opener)
    page.type(".menu input[type=search]", metric[:9])
    page.see("document.querySelectorAll('.menu label').length === 1")
    page.click(".menu label")
    page.key("Escape")
    page.see("!document.querySelector('.menu')")


# ── the list ──────────────────────────────────────────────────────────────────────────────────


def test_it_tells_of_every_run_how_it_stands(runs: Visitor) -> None:
    runs.sees("3 runs")
    names(runs, "mistral", "llama", "bert")
    # Accounts come by and by, without anybody doing anything.
    runs.see("document.querySelectorAll('tbody .goodput [role=img]').length === 3")
    row = runs.texts("tbody tr")[1]
    assert "pretraining" in row and "completed" in row and "step 359 of 400" in row
    assert "8" in row and "2 hosts" in row
    runs.click_text("llama", "tbody a")
    runs.sees("llama", "h1")
    assert runs.page.evaluate("location.hash") == "#/run/run-llama"


def test_filter_and_group_are_in_the_address(runs: Visitor) -> None:
    runs.type("input[type=search]", "ber")
    names(runs, "bert")
    assert runs.query()["q"] == "ber"
    runs.reload()
    names(runs, "bert")
    assert runs.page.evaluate("document.querySelector('input[type=search]').value") == "ber"
    runs.go("?q=host:gpu-2")
    names(runs, "mistral", "llama")
    runs.go("?state=failed")
    runs.sees("No run matches the filter.")
    runs.go()
    runs.click_text("By group")
    runs.sees("2 runs: 2 completed", "tbody")
    runs.click_text("▾ pretraining")
    names(runs, "mistral")
    runs.page.evaluate("history.back()")
    names(runs, "mistral", "llama", "bert")


COLUMNS = {
    "Run": ("name", "bert llama mistral"),
    "State": ("state", "mistral llama bert"),
    "Progress": ("-step", "llama mistral bert"),
    "Goodput": ("-goodput", "mistral llama bert"),
    "loss": ("metric:loss", "bert mistral llama"),
    "Ranks": ("-ranks", "llama mistral bert"),
    "Devices": ("-devices", "llama"),
    "Took": ("-took", "mistral llama bert"),
    "Started": ("-started", "mistral llama bert"),
}
"""How a click on each sorts first; the newest is first by itself."""


def test_every_column_sorts(runs: Visitor) -> None:
    runs.see("document.querySelectorAll('tbody .goodput [role=img]').length === 3")
    shown = f"[...document.querySelectorAll('{NAMES}')].map(e => e.innerText).join(' ')"
    for column, (key, order) in COLUMNS.items():
        runs.click_text(column, "th button")
        runs.see(f"{shown}.startsWith('{order}')")
        assert runs.query().get("sort", "-started") == key
        mark = "document.querySelector('th:is([aria-sort=ascending], [aria-sort=descending])')"
        assert column in runs.page.evaluate(f"{mark}.innerText")
        runs.click_text(column, "th button")
        runs.see(f"!{shown}.startsWith('{order}')")


def test_states_and_a_group_are_chosen(runs: Visitor) -> None:
    runs.click_text("running")
    names(runs, "mistral")
    runs.sees("1 of 3 runs")
    assert runs.query() == {"state": "running"}
    runs.click_text("completed")
    names(runs, "mistral", "llama", "bert")
    runs.click_text("running")
    names(runs, "llama", "bert")
    runs.go("run/run-bert")
    runs.click_text("pretraining", "main a")
    names(runs, "llama", "bert")
    assert runs.query() == {"group": "pretraining"}
    runs.click_text("group pretraining")
    names(runs, "mistral", "llama", "bert")


def test_values_of_chosen_metrics(runs: Visitor) -> None:
    pick_metric(runs, "learning_rate", "Values")
    runs.sees("learning_rate", "thead")
    runs.sees("3.00e−4", "tbody")
    assert runs.query()["metrics"] == "learning_rate"
    runs.click_text("Values")
    runs.type(".menu input[type=search]", "no such thing")
    runs.sees("No metric matches.", ".menu")
    runs.click("h1")
    runs.see("!document.querySelector('.menu')")


PARTS = "[aria-labelledby=sum-title] tbody tr"


def parts(runs: Visitor, *expected: str) -> list[str]:
    """The rows of the roll-up, once they begin so."""
    shown = f"[...document.querySelectorAll('{PARTS} td:first-child')].map(e => e.innerText)"
    runs.see(f"{shown}.map(t => t.split('\\n')[0]).join('|') === {'|'.join(expected)!r}")
    return [" ".join(row.split()) for row in runs.texts(PARTS)]


def test_runs_are_summed_by_group_user_and_week(runs: Visitor) -> None:
    runs.click_text("Roll-up")
    # Eight devices for twenty minutes, and one rank for one; two ranks that go on.
    first, second = parts(runs, "pretraining", "no group")
    assert first.startswith("pretraining 2 2.67 59.9 % waiting for data 12.5 %")
    assert second.startswith("no group 1 ")
    runs.see(f"document.querySelectorAll('{PARTS} [role=img]').length === 2")
    together = runs.texts("[aria-labelledby=sum-title] tfoot tr")[0]
    assert " ".join(together.split()).startswith("total 3 ")
    runs.click_text("Each user")
    rows = parts(runs, "ada", "no user", "bob")
    assert rows[0].startswith("ada 1 ")
    assert runs.query() == {"sum": "user"}
    runs.click_text("7 days")
    parts(runs, "ada", "no user", "bob")
    runs.click_text("Each week")
    runs.see(f"/^20\\d\\d-W\\d\\d$/.test(document.querySelector('{PARTS} td').innerText)")
    runs.sees("weeks begin on Mondays", "[aria-labelledby=sum-title]")
    runs.click_text("All time")
    runs.reload()
    runs.see(f"document.querySelectorAll('{PARTS}').length >= 1")
    assert runs.query() == {"sum": "week", "span": "all"}
    runs.click_text("4 weeks")
    runs.click_text("Each group")
    parts(runs, "pretraining", "no group")
    runs.click_text("pretraining", f"{PARTS} a")
    names(runs, "llama", "bert")
    parts(runs, "pretraining")
    assert runs.query() == {"sum": "group", "group": "pretraining"}
    runs.click_text("Each user")
    parts(runs, "ada", "bob")
    runs.click_text("bob", f"{PARTS} a")
    names(runs, "bert")
    assert runs.query()["q"] == "user:bob"
    runs.check_accessible()
    runs.theme("dark")
    runs.check_accessible()
    runs.size(390, 800)
    runs.see("document.documentElement.scrollWidth <= 390")
    runs.click_text("Roll-up")
    runs.see("!document.querySelector('#sum-title')")


def test_a_link_to_nowhere_says_so(runs: Visitor) -> None:
    runs.go("nowhere")
    runs.sees("There is no such page")
    runs.click_text("All runs", "main a")
    names(runs, "mistral", "llama", "bert")


# ── comparison ────────────────────────────────────────────────────────────────────────────────


def test_runs_are_chosen_to_be_compared(runs: Visitor) -> None:
    runs.see("!document.querySelector('.tools a.button').href")
    runs.click("[aria-label='Compare llama']")
    runs.click_text("Clear")
    runs.see("!document.querySelector('tbody input:checked')")
    for name in ("llama", "bert"):
        runs.click(f"[aria-label='Compare {name}']")
    runs.click_text("Compare 2 runs", "a")
    runs.sees("Compare", "h1")
    assert runs.query()["runs"] == "run-llama,run-bert"
    runs.click("[aria-label='Leave out bert']")
    runs.see("document.querySelectorAll('.runs .card').length === 1")
    runs.click_text("Choose others", "a")
    runs.see("document.querySelectorAll('tbody input:checked').length === 1")
    runs.go(COMPARED)
    runs.click_text("bert", ".runs a")
    runs.sees("bert", "h1")


def test_nothing_and_nobody_to_compare(runs: Visitor) -> None:
    runs.go("compare")
    runs.sees("Nothing to compare")
    runs.click_text("runs", "main a")
    names(runs, "mistral", "llama", "bert")


def test_settings_that_differ_are_shown_and_those_alike_on_demand(runs: Visitor) -> None:
    runs.go(COMPARED)
    runs.sees("optimizer.name", "table")
    assert "sgd" in " ".join(runs.texts("tbody tr.differs"))
    assert "shuffle" not in runs.texts("table")[0]
    runs.click_text("Show equal settings, too")
    runs.sees("data.shuffle", "table")
    assert runs.query()["all"] == "1"
    runs.go(f"{COMPARED},run-mistral")
    runs.size(320, 800)
    runs.see("document.querySelectorAll('thead th').length === 4")
    runs.see(
        "(e => e.scrollWidth > e.clientWidth)(document.querySelector('[aria-label=Settings]'))"
    )
    runs.focus("[aria-label=Settings]")
    runs.key("ArrowRight")
    runs.see("document.querySelector('[aria-label=Settings]').scrollLeft > 0")


def test_curves_of_runs_are_drawn_in_every_way(runs: Visitor) -> None:
    """Each way draws another picture, and is in the address."""
    runs.go(f"{COMPARED}&metrics=loss")
    before = runs.pixels(".charts canvas")
    runs.choose("input[type=range]", "0.8")
    before = runs.pixels(".charts canvas", besides=before)
    runs.click_text("Log scale")
    before = runs.pixels(".charts canvas", besides=before)
    for name, said in (("Wall time", "wall"), ("Relative time", "relative")):
        runs.click_text(name)
        before = runs.pixels(".charts canvas", besides=before)
        assert runs.query()["along"] == said
    runs.click_text("Step")
    runs.pixels(".charts canvas", besides=before)
    wanted = {"runs": "run-llama,run-bert", "metrics": "loss", "smooth": "0.8", "log": "1"}
    assert runs.query() == wanted
    runs.point(".charts .u-over", 0.05)
    runs.see("/step \\d+/.test(document.querySelector('.charts h2').innerText)")
    runs.sees("llama", ".charts ul")
    pick_metric(runs, "learning_rate", "Metrics")
    runs.see("document.querySelectorAll('.charts canvas').length === 2")
    runs.check_accessible()


# ── everywhere ────────────────────────────────────────────────────────────────────────────────


def test_the_head_of_the_page_leads_everywhere(runs: Visitor) -> None:
    runs.click_text("Cluster", "header a")
    runs.sees("Cluster", "h1")
    runs.click_text("Runs", "header a")
    names(runs, "mistral", "llama", "bert")
    runs.go("cluster")
    runs.sees("Cluster", "h1")
    runs.click_text("Runwatch", "header a")
    names(runs, "mistral", "llama", "bert")
    runs.reload()
    names(runs, "mistral", "llama", "bert")
    runs.key("Tab")
    runs.see("document.activeElement.className.includes('skip')")
    runs.key("Enter")
    runs.see("document.activeElement.id === 'main'")


def test_the_list_in_any_light_and_on_a_phone(runs: Visitor) -> None:
    runs.check_accessible()
    runs.theme("dark")
    runs.check_accessible()
    runs.click("header [aria-label^=Switch]")
    assert runs.page.evaluate("document.documentElement.dataset.theme") == "light"
    runs.reload()
    names(runs, "mistral", "llama", "bert")
    assert runs.page.evaluate("document.documentElement.dataset.theme") == "light"
    runs.click("header [aria-label^=Switch]")
    runs.size(390, 800)
    runs.see("document.documentElement.scrollWidth <= 390")
    runs.see("document.querySelector('.scroller').scrollWidth <= 390")
    runs.see("document.querySelectorAll('tbody .goodput [role=img]').length === 3")
    runs.see("[...document.querySelectorAll('tbody tr')].every(e => e.offsetHeight <= 67)")
    assert "359 of 400 · loss 1.836" in runs.texts("tbody tr")[1]
    runs.check_accessible()
