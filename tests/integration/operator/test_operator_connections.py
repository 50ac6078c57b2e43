"""MLDiagnosticsConnections, as google-cloud-mldiagnostics has them."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests.cluster.answers import Refusal
from tests.integration.operator import objects
from tests.integration.operator.kubectl import printed
from tests.integration.operator.site import Site

pytestmark = [pytest.mark.xdist_group("operator"), pytest.mark.timeout(300)]
Thing = dict[str, Any]
FIELDS = (
    "capturePort",
    "durationSeconds",
    "podName",
    "podNamespace",
    "profiler",
    "storageLocation",
)


def test_a_profile_is_put_where_the_connection_says(site: Site) -> None:
    operator = site.begin_operator()
    seen: list[str] = []

    def phase_of(asked: Any) -> None:
        if asked.method == "PATCH" and asked.path.endswith("/whole/status"):
            thing = site.api.get("mldc", "whole", objects.NAMESPACE)
            seen.append(thing["status"]["phase"])

    site.api.faults.done.append(phase_of)
    made = objects.connection(
        site.api, "whole", podName="llama-0, llama-1", storageLocation=str(site.profiles)
    )
    status = site.ended("mldc", "whole")
    assert status["phase"] == "Succeeded", (status, operator.words())
    session = f"connection-{made['metadata']['uid']}"
    output = f"{site.profiles}/plugins/profile/{session}"
    assert status["captureResult"] == {"status": "Succeeded", "outputLocation": output}
    assert status["startTime"] <= status["completionTime"]
    assert sorted(os.listdir(output)) == ["llama-0.kineto.json.gz", "llama-1.kineto.json.gz"]
    assert list(dict.fromkeys(seen)) == ["Pending", "Running", "Succeeded"]
    notes = site.api.get("mldc", "whole", objects.NAMESPACE)["metadata"]["annotations"]
    assert json.loads(notes["runwatch.dev/capture"])["way"] == "head"
    site.check_captured_once(session)


def test_bad_pods_and_places_fail_in_words(site: Site) -> None:
    objects.pod(site.api, "waits", phase="Pending")
    bad = {
        "no-pod": ({"podName": "llama-0,llama-9"}, "there is no pod team/llama-9"),
        "empty": ({"podName": "llama-0,"}, "names of pods with commas between"),
        "waiting": ({"podName": "waits"}, "pod team/waits is Pending, and not Running"),
        "elsewhere": ({"storageLocation": "/etc"}, "RUNWATCH_FILES"),
        "scheme": ({"storageLocation": "ftp://host/path"}, "RUNWATCH_STORAGE_SCHEMES"),
        "silent": ({"podName": "alone"}, "nothing listens"),
    }
    objects.pod(site.api, "alone")
    before = len(site.captures())
    site.begin_operator()
    for name, (trigger, _) in bad.items():
        objects.connection(site.api, name, **{"storageLocation": str(site.profiles)} | trigger)
    for name, (_, words) in bad.items():
        status = site.ended("mldc", name)
        assert status["phase"] == status["captureResult"]["status"] == "Failed"
        assert words in status["captureResult"]["errorMessage"], status
        assert "outputLocation" not in status["captureResult"]
        assert status["completionTime"]
    assert len(site.captures()) == before
    for name in ("waits", "alone"):
        site.api.delete("pod", name, objects.NAMESPACE)


@pytest.mark.parametrize("missing", FIELDS)
def test_a_connection_without_a_field_is_refused(site: Site, missing: str) -> None:
    with pytest.raises(Refusal, match=missing) as refused:
        objects.connection(site.api, "lacking", **{"storageLocation": "gs://b", missing: None})
    assert refused.value.code == 422


def test_kubectl_prints_status_and_age(site: Site) -> None:
    site.begin_operator()
    objects.connection(site.api, "shown", podName="nobody", storageLocation=str(site.profiles))
    site.ended("mldc", "shown")
    told = printed(site, "get", "mldc", "-n", objects.NAMESPACE)
    assert re.match(r"NAME +STATUS +AGE\nshown +Failed +\d+s\n$", told), told
