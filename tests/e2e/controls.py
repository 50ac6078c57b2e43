"""Every control of the page, and the test that operates it.

`test_page_controls.py` walks over all pages and compares: a control that nobody operates, or one
that is claimed here and gone from the page, fails there.  A test that is named here and does not
operate its controls fails itself (`browsing.operating`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

NAMING: Final = Path(__file__).with_name("controls.js").read_text()
_DATA: Final = (
    (r"\b(?:run-)?(?:llama|bert|mistral|crowd|captured)\b|\bjob-\d+", "RUN"),
    (r"\bpretraining\b", "GROUP"),
    (r"^(?:ada|bob)$", "USER"),
    (r"^(?:GROUP|no group) \d+ runs?:.*", "GROUP"),
    (r"^Compare \d+ runs?$", "Compare N"),
    (r"\b(?:dark|light) theme", "THEME theme"),
    (r"\d+ process(?:es)?$", "N processes"),
    (r"\d+ more .*", "N more"),
    (r"\bgpu-\d+(?: gpu\d+)?", "HOST"),
    (r"\b(?:warm-up|step-200|large|spare)\b", "SESSION"),
    (r"\b(?:layer_\d+/)?[a-z]+(?:_[a-z]+)+\b|\bloss\b", "METRIC"),
    (r"^(running|completed|failed|killed|lost) ", "STATE "),
    (r"(?<=session ).*", "SESSION"),
    (r"(?<=Revoke ).*", "LINK"),
    (r"\d[\d,.]*", "N"),
)
"""What is data in a control's name, and what is said instead."""


def called(page: str, kind: str, words: str, gesture: str = "") -> str:
    for pattern, instead in _DATA:
        words = re.sub(pattern, instead, words)
    name = f"{page}: {kind} {words}".rstrip()
    return f"{name} ({gesture})" if gesture else name


CONTROLS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "every page": {
        "test_who_may_only_look_is_offered_nothing_else": ("button Leave this link",),
        "test_in_with_the_token_and_out_again": ("button Log out",),
        "test_the_list_in_any_light_and_on_a_phone": ("button Switch to the THEME theme",),
        "test_the_head_of_the_page_leads_everywhere": (
            "link Cluster",
            "link Runs",
            "link Runwatch",
            "link Skip to the content",
        ),
        "test_what_needs_attention_is_told_on_every_page": ("fold Needs attention: N things",),
    },
    "login": {
        "test_in_with_the_token_and_out_again": (
            "button Log in",
            "field Token",
        ),
        "test_a_link_is_made_used_and_taken_back": ("button Forget my shared link",),
    },
    "runs": {
        "test_a_long_list_of_runs_is_scrolled": ("area Runs",),
        "test_filter_and_group_are_in_the_address": (
            "button By group",
            "button GROUP",
            "field Filter",
        ),
        "test_runs_are_chosen_to_be_compared": (
            "button Clear",
            "link Compare N",
            "tick Compare RUN",
        ),
        "test_every_column_sorts": (
            "button Devices",
            "button Goodput",
            "button METRIC",
            "button Progress",
            "button Ranks",
            "button Run",
            "button Started",
            "button State",
            "button Took",
        ),
        "test_states_and_a_group_are_chosen": (
            "button STATE N",
            "button group GROUP",
        ),
        "test_values_of_chosen_metrics": (
            "button Values",
            "field Find a metric",
            "tick a metric",
        ),
        "test_it_tells_of_every_run_how_it_stands": ("link RUN",),
        "test_runs_are_summed_by_group_user_and_week": (
            "button All time",
            "button Each group",
            "button Each user",
            "button Each week",
            "button N days",
            "button N weeks",
            "button Roll-up",
            "link GROUP",
            "link USER",
        ),
    },
    "compare": {
        "test_settings_that_differ_are_shown_and_those_alike_on_demand": (
            "area Settings",
            "button Show equal settings, too",
        ),
        "test_curves_of_runs_are_drawn_in_every_way": (
            "button Log scale",
            "button Metrics",
            "button Relative time",
            "button Step",
            "button Wall time",
            "chart (point)",
            "field Find a metric",
            "slider Smoothing",
            "tick a metric",
        ),
        "test_runs_are_chosen_to_be_compared": (
            "link Choose others",
            "link Leave out RUN",
            "link RUN",
        ),
        "test_nothing_and_nobody_to_compare": ("link runs",),
    },
    "run": {
        "test_a_run_is_deleted_only_when_that_is_meant": (
            "button Delete",
            "button Delete it",
            "button Keep it",
        ),
        "test_a_link_is_made_used_and_taken_back": (
            "button Close the sharing panel",
            "button Copy it",
            "button Make a link",
            "button Share",
            "button Revoke LINK",
            "choice Works for",
            "field Note",
            "field The new link",
        ),
        "test_every_tab_is_a_click_away": (
            "link Config",
            "link Devices",
            "link Goodput",
            "link Logs",
            "link Metrics",
            "link Processes",
            "link Profiles",
            "link Stacks",
            "link Timeline",
        ),
        "test_states_and_a_group_are_chosen": ("link GROUP",),
    },
    "timeline": {
        "test_a_click_tells_what_and_why": (
            "button Close the details",
            "button something that happened",
            "lane goodput (click)",
        ),
        "test_the_link_is_copied": ("button Copy link",),
        "test_every_way_back_to_the_whole_run": (
            "button Zoom in",
            "button Zoom out",
            "lane overview (click)",
            "lane steps (double click)",
            "timeline (Home)",
        ),
        "test_metrics_and_devices_are_chosen": (
            "button Metrics",
            "choice Device metric",
            "field Find a metric",
            "tick a metric",
        ),
        "test_who_has_come_to_a_wrong_run_finds_back": (
            "button Try again",
            "link All runs",
        ),
        "test_a_brush_zooms_everything_and_the_link_leads_back_here": (
            "button Whole run",
            "lane goodput (drag)",
            "lane steps (drag)",
        ),
        "test_a_brush_works_on_every_row": (
            "lane axis (drag)",
            "lane band (drag)",
            "lane events (drag)",
            "lane heat (drag)",
            "lane overview (drag)",
        ),
        "test_a_click_on_a_mark_tells_of_it": (
            "lane checkpoints (click)",
            "lane events (click)",
        ),
        "test_wheel_and_keys_move_it": (
            "lane goodput (Ctrl + wheel)",
            "lane goodput (Shift + wheel)",
            "timeline (+)",
            "timeline (-)",
            "timeline (0)",
            "timeline (ArrowLeft)",
            "timeline (ArrowRight)",
        ),
        "test_the_cursor_reads_every_row": (
            "lane goodput (point)",
            "lane heat (point)",
        ),
        "test_a_click_on_a_box_tells_of_it_and_leads_on": (
            "lane incidents (click)",
            "lane profiles (click)",
            "link Open the profiles",
            "link See the stacks",
        ),
        "test_a_moment_leads_to_the_log_of_that_time": ("link See the log of that time",),
        "test_a_drag_is_dropped_with_escape": ("timeline (Escape)",),
    },
    "goodput": {
        "test_goodput_over_time_is_read_with_the_mouse_and_with_keys": (
            "bars over time (ArrowLeft)",
            "bars over time (ArrowRight)",
            "bars over time (point)",
        ),
        "test_what_failed_is_tried_again": ("button Try again",),
        "test_a_stretch_of_the_run_is_accounted_for_by_itself": ("button Whole run",),
    },
    "metrics": {
        "test_metrics_are_found_and_shown_in_every_way_that_the_address_keeps": (
            "button Each rank",
            "button Log scale",
            "button Relative time",
            "button Show all",
            "button Step",
            "button Wall time",
            "field Search metrics",
            "slider Smoothing",
        ),
        "test_dragging_in_a_chart_zooms_all_of_them": (
            "button Whole run",
            "chart (drag)",
        ),
        "test_each_rank_has_a_line_and_sections_fold": (
            "chart (point)",
            "fold Training N",
        ),
    },
    "devices": {
        "test_devices_have_a_map_curves_and_incidents": (
            "button All devices",
            "button Whole run",
            "chart (drag)",
            "chart (point)",
            "choice Metric",
            "heat map (click)",
        ),
        "test_devices_are_shown_by_another_statistic_and_chosen_in_the_table": (
            "button HOST",
            "choice as",
        ),
        "test_the_map_of_devices_is_read_with_keys": (
            "heat map (ArrowDown)",
            "heat map (ArrowLeft)",
            "heat map (ArrowRight)",
            "heat map (ArrowUp)",
            "heat map (Enter)",
        ),
    },
    "logs": {
        "test_lines_are_searched_and_chosen": (
            "area Log",
            "choice Attempt",
            "choice Stream",
            "field Rank",
            "field Search the log",
        ),
        "test_an_exception_is_open_and_can_be_folded": ("button an exception",),
        "test_a_line_leads_to_its_moment_and_back": (
            "button To the end",
            "link the time of a line",
        ),
        "test_what_is_not_said_is_not_found": (
            "button Show all lines",
            "button Whole run",
        ),
        "test_the_log_of_a_run_that_goes_on_can_be_followed": ("button Follow",),
    },
    "stacks": {
        "test_an_incident_names_the_rank_and_shows_its_stack_first": (
            "button Hide its stacks",
            "button Show its stacks",
            "fold Full stacks of N processes",
            "link on the timeline",
        ),
        "test_where_nobody_can_be_asked_it_says_why": (
            "button Take stacks now",
            "tick native frames, too (a second more per process)",
        ),
        "test_more_frames_are_shown": ("button and N more",),
        "test_stacks_open_as_a_flame_graph": (
            "link Flame graph of this incident",
            "link Flame graph",
        ),
    },
    "profiles": {
        "test_a_capture_that_nobody_can_make_says_why": (
            "button Capture",
            "button Check first",
            "button Close the capture panel",
            "button Start",
            "choice Hosts",
            "choice Unit",
            "field For",
            "field Ranks",
        ),
        "test_a_capture_is_checked_followed_and_opened": ("button Capture another",),
        "test_more_files_are_shown_and_a_session_is_deleted": (
            "button Delete SESSION",
            "button Delete …",
            "button N more",
            "button Summary",
        ),
        "test_profiles_are_summarised_and_open_in_viewers": (
            "button Keep it",
            "button Hide summary",
            "link All profiles of this head",
            "link Open in Perfetto",
            "link Open in XProf",
            "link download",
        ),
    },
    "processes": {
        "test_more_processes_are_shown": ("button N more",),
        "test_processes_tell_how_each_ended_and_what_it_said": (
            "button Show all",
            "choice Attempt",
            "field Rank",
            "button Whole run",
        ),
    },
    "config": {
        "test_a_configuration_is_searched_and_compared": (
            "button Show all",
            "choice Compare with",
            "field Search the configuration",
            "fold a branch",
            "tick Show equal settings, too",
        ),
    },
    "cluster": {
        "test_more_devices_and_sessions_are_shown": (
            "button All N sessions",
            "button N more",
        ),
        "test_sessions_are_started_stopped_and_exported": (
            "button Resume session SESSION",
            "button Start a session",
            "button Stop session SESSION",
            "field Name of the new session",
            "link JSON",
            "link Parquet",
        ),
        "test_the_cluster_shows_what_hurts_first": (
            "button Memory",
            "button Power",
            "button Temperature",
            "button Tensor activity",
            "button Utilisation",
            "choice sort by",
            "field Search devices",
            "link RUN",
            "squares (point)",
        ),
    },
    "nowhere": {
        "test_a_link_to_nowhere_says_so": ("link All runs",),
    },
}
"""Page → test → what it operates there, with the gesture where there are several."""
NOT_WALKED: Final = frozenset(
    {
        "every page: button Leave this link",
        "every page: button Log out",
        "every page: fold Needs attention: N things",
        "login: button Forget my shared link",
        "profiles: button Capture another",
    }
)
"""Where the walk does not come: in by a link, logged in, something wrong, turned away, after a
capture."""


def claimed_by(test: str) -> frozenset[str]:
    return frozenset(
        f"{page}: {control}" for page, tests in CONTROLS.items() for control in tests.get(test, ())
    )


def claimed() -> frozenset[str]:
    return frozenset().union(*(claimed_by(test) for tests in CONTROLS.values() for test in tests))


def without_gesture(control: str) -> str:
    return re.sub(r" \([^()]*\)$", "", control)
