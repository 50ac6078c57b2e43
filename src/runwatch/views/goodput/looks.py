"""The words and colours of the classes of an account, for the page and the terminal.

A class is a member of `Spent` (`classes.py`) and an entry here.  `/api/v1/goodput/classes` serves
the table, and `make types` writes it for the page.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ClassLook(NamedTuple):
    name: str
    words: str
    meaning: str
    light: str
    """The colour on a light page."""
    dark: str
    """The colour on a dark page."""
    style: str
    """The colour in a terminal, as rich names it."""
    sign: str
    """The character that shows the class where there is no colour."""
    recorded: str = ""
    """For a class that spans claim: what the span shows, after "It was recorded:"."""


LOOKS: Final = (
    ClassLook(
        "productive", "productive steps",
        "Training steps whose work was kept.",
        "#2f9e6e", "#3fb582", "green", "█",
    ),
    ClassLook(
        "program_startup", "program startup",
        "From the start of the processes to their first sign of training: imports, compilation.",
        "#8fb8d9", "#5f8fb5", "bright_blue", "▓",
    ),
    ClassLook(
        "accelerator_init", "accelerator initialisation",
        "Waiting for the accelerators to come up.",
        "#a9c7a0", "#7d9f74", "blue", "▓",
        recorded="devices were being initialised",
    ),
    ClassLook(
        "training_preparation", "training preparation",
        "Building the model, the data pipeline and all else before the first step.",
        "#5b9bd1", "#4a86ba", "cyan", "▓",
    ),
    ClassLook(
        "data_loading", "waiting for data",
        "The ranks waited for the next batch: the input pipeline did not keep up.",
        "#e8a33d", "#dd9a3a", "yellow", "▒",
        recorded="the next batch was waited for, and the device had nothing to do",
    ),
    ClassLook(
        "checkpoint_save", "saving checkpoints",
        "Training stood still while a checkpoint was written.",
        "#7a5ea8", "#9a7fcb", "bright_cyan", "◆",
        recorded="a checkpoint was being saved, and training waited for it",
    ),
    ClassLook(
        "checkpoint_restore", "restoring checkpoints",
        "Reading the checkpoint to go on from.",
        "#a58bce", "#7c63ab", "bright_magenta", "◇",
        recorded="a checkpoint was being restored",
    ),
    ClassLook(
        "evaluation", "evaluation",
        "Evaluation between training steps.",
        "#3fa7b5", "#3b98a6", "bright_green", "≡",
        recorded="an evaluation was running",
    ),
    ClassLook(
        "wasted_progress", "wasted progress",
        "Steps that had to be done again, because the run stopped before a checkpoint kept them.",
        "#c8453b", "#e0665b", "red", "×",
    ),
    ClassLook(
        "infrastructure_recovery", "infrastructure recovery",
        "Nothing ran: from the end of one attempt to the start of the next.",
        "#7d8592", "#8b93a1", "magenta", "·",
    ),
    ClassLook(
        "scheduling_wait", "waiting to be scheduled",
        "The run waited for machines: it was in a queue, or a pod that it needs had no node.",
        "#2b45b5", "#5468e8", "bold blue", "…",
    ),
    ClassLook(
        "pod_startup", "image pulls and pod start",
        "All pods had nodes; images, volumes and init containers of one were waited for.",
        "#7f8ce8", "#a9b4ff", "bold cyan", ":",
    ),
    ClassLook(
        "stall", "hang or stall",
        "A step took far longer than usual and nothing says why: some rank or device stood still.",
        "#d4237a", "#e8549b", "bright_red", "!",
    ),
    ClassLook(
        "slow_steps", "slow steps",
        "What steps took longer than usual, though the run went on.",
        "#e596ba", "#b04a7d", "bright_yellow", "~",
    ),
    ClassLook(
        "degraded_capacity", "degraded capacity",
        "The share of the working time that missing ranks of an elastic job would have had.",
        "#b3a445", "#c7b85c", "yellow", "▄",
    ),
    ClassLook(
        "excluded", "excluded",
        "Left out of the account on request; no share is made of it.",
        "#d9dce1", "#3d434d", "bright_black", " ",
    ),
    ClassLook(
        "elastic_slice_down", "elastic: slices down",
        "Waiting after slices were lost.",
        "#b5793a", "#c98c4b", "bright_yellow", "▽",
        recorded="the job was waiting to go on with fewer ranks",
    ),
    ClassLook(
        "elastic_scale_up", "elastic: scaling up",
        "Waiting for slices to come back.",
        "#c99a62", "#a97840", "bright_yellow", "△",
        recorded="the job was waiting for ranks to join",
    ),
    ClassLook(
        "elastic_reinitialization", "elastic re-initialisation",
        "Setting training up for a changed number of slices.",
        "#97682f", "#dba25e", "bright_yellow", "◁",
        recorded="the job was starting over with other ranks",
    ),
    ClassLook(
        "unattributed", "unattributed",
        "No record says what this time went into.",
        "#c3c8d0", "#565d69", "white", "░",
    ),
)  # fmt: skip
"""In the order in which people see them."""

CUSTOM_STYLE: Final = "bright_white"
CUSTOM_SIGN: Final = "≡"
_BY_NAME: Final = {look.name: look for look in LOOKS}


def look_of(name: str) -> ClassLook | None:
    """None for a span that the program has named."""
    return _BY_NAME.get(name)
