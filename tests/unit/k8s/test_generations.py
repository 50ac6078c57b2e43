"""Certificates of our own in generations: what is kept and what is served, by the time alone."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509

from runwatch.k8s.generations import Generation, bundle, make, read, renewed, served, written

DAY = 86_400 * 10**9
MINUTE = 60 * 10**9
NOW = 1_795_068_000 * 10**9
NAME = "runwatch-webhook.runwatch.svc"


def made(at_ns: int, names: Sequence[str] = (NAME,)) -> Generation:
    """Without the cost of keys."""
    return Generation(at_ns, at_ns + 365 * DAY, tuple(names), f"a{at_ns}", f"c{at_ns}", "k")


def test_the_first_is_made_and_served_at_once() -> None:
    kept = renewed([], [NAME], NOW)
    assert [each.made_ns for each in kept] == [NOW]
    assert served(kept, NOW) is kept[0]


def test_nothing_is_due_for_nine_months() -> None:
    kept = [made(NOW)]
    for days in (0, 1, 100, 274):
        assert renewed(kept, [NAME], NOW + days * DAY) == kept


def test_the_next_is_made_long_before_the_end_and_served_when_it_is_known() -> None:
    """At no moment is one served whose authority was not in the bundle for ten minutes."""
    kept = [made(NOW)]
    due = NOW + 276 * DAY
    both = renewed(kept, [NAME], due)
    assert [each.made_ns for each in both] == [NOW, due]
    assert bundle(both).startswith(kept[0].authority)
    assert served(both, due) == kept[0]
    assert served(both, due + 10 * MINUTE - 1) == kept[0]
    assert served(both, due + 10 * MINUTE) == both[1]
    assert renewed(both, [NAME], due + 20 * MINUTE - 1) == both
    assert renewed(both, [NAME], due + 20 * MINUTE) == both[1:]


@pytest.mark.parametrize("look_minutes", [0.5, 7, 60 * 24 * 3])
def test_through_three_years_what_is_served_is_good_and_trusted(look_minutes: float) -> None:
    kept = [made(NOW)]
    known_since = {kept[0].authority: NOW - DAY}
    step = round(look_minutes * MINUTE)
    now = NOW
    while now < NOW + 3 * 365 * DAY:
        # Between what is due nothing happens: there the steps are long.
        near = any(now - each.made_ns < 60 * MINUTE for each in kept) or step > DAY
        now += step if near else 12 * 60 * MINUTE
        kept = _renewed_cheaply(kept, now)
        for each in kept:
            known_since.setdefault(each.authority, now)
        shown = served(kept, now)
        assert shown.until_ns > now and shown in kept
        assert now - known_since[shown.authority] >= 10 * MINUTE


def _renewed_cheaply(kept: list[Generation], now: int) -> list[Generation]:
    """A new one is made with keys: here only its times count."""
    after = renewed(kept, [NAME], now)
    return [each if each in kept else made(each.made_ns) for each in after]


def test_one_that_expired_while_nobody_was_there_is_replaced() -> None:
    late = NOW + 400 * DAY
    kept = renewed([made(NOW)], [NAME], late)
    assert [each.made_ns for each in kept] == [late]
    assert served(kept, late) is kept[0]


def test_for_another_name_another_one_is_made() -> None:
    """The release was installed into another namespace, and the Secret came along."""
    kept = renewed([made(NOW, ["other.svc"])], [NAME], NOW + DAY)
    assert [tuple(each.names) for each in kept] == [(NAME,)]


def test_a_clock_that_went_back_changes_nothing() -> None:
    kept = [made(NOW)]
    assert renewed(kept, [NAME], NOW - DAY) == kept
    assert served(kept, NOW - DAY) == kept[0]


def test_replicas_decide_the_same() -> None:
    kept = [made(NOW), made(NOW + 276 * DAY)]
    moments = [NOW + 276 * DAY + minutes * MINUTE for minutes in (1, 11, 21)]
    for now in moments:
        assert renewed(list(kept), [NAME], now) == renewed(list(kept), [NAME], now)
    assert [len(renewed(kept, [NAME], now)) for now in moments] == [2, 2, 1]


def test_what_is_written_is_read() -> None:
    kept = [made(NOW), made(NOW + DAY, ("a", "b"))]
    assert read(written(kept)) == kept


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"version": 2, "generations": []}', '{"version": 1}']
    + ['{"version": 1, "generations": [{}]}', '{"version": 1, "generations": 7}']
    + ['{"version": 1, "generations": [{"made_ns": "x"}]}'],
)
def test_what_is_damaged_is_nothing(text: str) -> None:
    assert read(text) == []


@pytest.fixture(scope="module")
def real() -> Generation:
    return make([NAME, f"{NAME}.cluster.local"], NOW)


def test_a_certificate_is_for_its_names_a_year(real: Generation) -> None:
    found = x509.load_pem_x509_certificate(real.certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME, f"{NAME}.cluster.local"]
    now = datetime.datetime.fromtimestamp(NOW // 10**9, datetime.UTC)
    assert found.not_valid_before_utc == now - datetime.timedelta(hours=1)
    assert found.not_valid_after_utc == now + datetime.timedelta(days=365)
    authority = x509.load_pem_x509_certificate(real.authority.encode())
    found.verify_directly_issued_by(authority)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)


def test_an_authority_of_another_generation_does_not_do(tmp_path: Path) -> None:
    first, second = make([NAME], time.time_ns()), make([NAME], time.time_ns())
    assert shakes_hands(tmp_path, first, bundle([first, second])) == ""
    assert shakes_hands(tmp_path, second, bundle([first, second])) == ""
    assert "CERTIFICATE_VERIFY_FAILED" in shakes_hands(tmp_path, second, bundle([first]))
    assert "Hostname mismatch" in shakes_hands(tmp_path, first, first.authority, "other.svc")


def shakes_hands(place: Path, generation: Generation, trusted: str, name: str = NAME) -> str:
    """What OpenSSL says against it, strictly."""
    (place / "c.pem").write_text(generation.certificate)
    (place / "k.pem").write_text(generation.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(place / "c.pem", place / "k.pem")
    trust = ssl.create_default_context(cadata=trusted)
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    theirs, ours = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        trust.wrap_socket(ours, server_hostname=name).close()
    except ssl.SSLError as error:
        return str(error)
    finally:
        ours.close()
        thread.join()
    return ""
