from tests.unit.sdk.conftest import begin, nothing_left_behind, place, story

__all__ = ["begin", "nothing_left_behind", "place", "story"]
