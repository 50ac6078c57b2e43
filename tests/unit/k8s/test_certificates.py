"""The certificate that the webhook shows: from files or our own, changed while it serves."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runwatch.errors import RunwatchError
from runwatch.k8s import generations
from runwatch.k8s.api import Access, Api, ApiError
from runwatch.k8s.certificates import FromFiles, OfOurOwn, Pair, Served
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.webhook import Webhook, serving
from runwatch.testing import FakeClock
from tests.cluster.chart import of_kind, rendered
from tests.cluster.server import Cluster
from tests.unit.k8s.conftest import Asking, all_closed

NAME: Final = "runwatch-webhook.runwatch.svc"
SECRET, SCOPE = "runwatch-webhook-certificate", "scope"
DAY: Final = 86_400.0
Thing = dict[str, Any]


@pytest.fixture(scope="module")
def chart() -> list[Thing]:
    return rendered()


@pytest.fixture
def clean(cluster: Cluster, chart: list[Thing]) -> Cluster:
    """As the chart leaves it: an empty Secret, and a configuration without a bundle."""
    for kind, name in (("Secret", SECRET), ("MutatingWebhookConfiguration", SCOPE)):
        space = "runwatch" if kind == "Secret" else ""
        if cluster.find(kind, name, space):
            cluster.delete(kind, name, space)
    cluster.namespace("runwatch")
    (scope,) = of_kind(chart, "MutatingWebhookConfiguration")
    cluster.apply([*of_kind(chart, "Secret", SECRET), scope | {"metadata": {"name": SCOPE}}])
    cluster.faults.clear()
    return cluster


def bundles(cluster: Cluster) -> set[str]:
    webhooks = cluster.get("MutatingWebhookConfiguration", SCOPE)["webhooks"]
    return {base64.b64decode(each["clientConfig"]["caBundle"]).decode() for each in webhooks}


def kept(cluster: Cluster) -> list[generations.Generation]:
    data = cluster.get("Secret", SECRET, "runwatch")["data"]["generations.json"]
    return generations.read(base64.b64decode(data).decode())


def ours(api: Api, clock: FakeClock) -> OfOurOwn:
    return OfOurOwn(api, "runwatch", SECRET, SCOPE, [NAME], clock)


def test_the_first_look_makes_one_and_says_whom_to_trust(
    clean: Cluster, asking: Asking[Pair]
) -> None:
    pair = asking(lambda api: ours(api, FakeClock()).look())
    (only,) = kept(clean)
    assert pair == Pair(only.certificate.encode(), only.key.encode())
    assert bundles(clean) == {only.authority}


def test_a_second_look_writes_nothing(clean: Cluster, asking: Asking[list[Pair]]) -> None:
    async def thrice(api: Api) -> list[Pair]:
        mine, other = ours(api, FakeClock()), ours(api, FakeClock())
        return [await mine.look(), await mine.look(), await other.look()]

    since = len(clean.asked)
    first, second, third = asking(thrice)
    assert first == second == third
    writes = [each.path for each in clean.asked[since:] if each.method != "GET"]
    assert len(writes) == 2


def test_of_ten_that_begin_at_once_one_is_right(clean: Cluster, asking: Asking[list[Pair]]) -> None:
    async def together(api: Api) -> list[Pair]:
        return await asyncio.gather(*(ours(api, FakeClock()).look() for _ in range(10)))

    pairs = asking(together)
    (only,) = kept(clean)
    assert set(pairs) == {Pair(only.certificate.encode(), only.key.encode())}
    assert bundles(clean) == {only.authority}


def test_without_the_charts_secret_it_is_made(clean: Cluster, asking: Asking[Pair]) -> None:
    clean.delete("Secret", SECRET, "runwatch")
    asking(lambda api: ours(api, FakeClock()).look())
    assert len(kept(clean)) == 1


@pytest.mark.parametrize("damage", ["not base64 json", '{"version": 9}'])
def test_a_damaged_secret_is_written_anew(
    clean: Cluster, asking: Asking[Pair], damage: str
) -> None:
    content = base64.b64encode(damage.encode()).decode()
    clean.patch("Secret", SECRET, {"data": {"generations.json": content}}, "runwatch")
    asking(lambda api: ours(api, FakeClock()).look())
    assert bundles(clean) == {generations.bundle(kept(clean))}


def test_a_configuration_that_was_applied_again_gets_its_bundle_back(
    clean: Cluster, asking: Asking[None]
) -> None:
    """`helm upgrade` takes it away."""

    async def twice(api: Api) -> None:
        mine = ours(api, FakeClock())
        await mine.look()

        def strip(thing: Thing) -> None:
            for each in thing["webhooks"]:
                each["clientConfig"].pop("caBundle")

        clean.edit("MutatingWebhookConfiguration", SCOPE, strip)
        await mine.look()

    asking(twice)
    assert bundles(clean) == {generations.bundle(kept(clean))}


def test_who_is_overtaken_while_it_writes_reads_again(clean: Cluster, asking: Asking[Pair]) -> None:
    clean.faults.conflict("/secrets/", times=2)
    clean.faults.conflict("/mutatingwebhookconfigurations/", times=2)
    asking(lambda api: ours(api, FakeClock()).look())
    assert bundles(clean) == {generations.bundle(kept(clean))}


def test_what_changes_again_and_again_is_given_up(clean: Cluster, asking: Asking[Pair]) -> None:
    clean.faults.conflict("/secrets/", times=99)
    with pytest.raises(ApiError, match="again and again"):
        asking(lambda api: ours(api, FakeClock()).look())


# ── while it serves ───────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def served(
    cluster: Cluster, clock: FakeClock, **more: Any
) -> AsyncIterator[tuple[Webhook, int]]:
    """It looks when the test says so."""
    settings = WebhookSettings(
        bind="127.0.0.1", port=0, certificate_secret=SECRET, configuration=SCOPE, **more
    )
    access = Access(cluster.server, cluster.account("runwatch", "runwatch-webhook"))
    async with serving(settings, access, clock=clock, look_seconds=3600) as (webhook, port):
        yield webhook, port


async def shown(port: int, authorities: str = "") -> bytes:
    """The certificate that somebody is shown who connects now, and trusts these authorities."""
    trust = ssl.create_default_context(cadata=authorities or None)
    if not authorities:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAME)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return certificate


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem)


async def ready(webhook: Webhook) -> None:
    async with asyncio.timeout(100):
        while not webhook.served.is_ready:
            await asyncio.sleep(0.005)


def run(deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def done() -> None:
        await deed()
        await all_closed()

    asyncio.run(done())


def test_a_certificate_changes_without_a_restart(clean: Cluster) -> None:
    """The old one is shown until the new authority has been in the bundle for ten minutes; at each
    moment who trusts the bundle of then, or of before, trusts what is shown."""

    async def deed() -> None:
        clock = FakeClock(time.time_ns() - 276 * 86_400 * 10**9)
        async with served(clean, clock) as (webhook, port):
            await ready(webhook)
            (first,) = await asyncio.to_thread(kept, clean)
            before = await bundle_of(clean)
            assert await shown(port, before) == der(first.certificate)
            clock.advance(276 * DAY)
            await webhook.renew()
            both = await bundle_of(clean)
            assert (await shown(port, before), before in both) == (der(first.certificate), True)
            clock.advance(601)
            await webhook.renew()
            (_, second) = await asyncio.to_thread(kept, clean)
            assert await shown(port, both) == der(second.certificate)
            clock.advance(601)
            await webhook.renew()
            after = await bundle_of(clean)
            assert after == second.authority
            assert await shown(port, after) == der(second.certificate)

    run(deed)


async def bundle_of(cluster: Cluster) -> str:
    (found,) = await asyncio.to_thread(bundles, cluster)
    return found


def test_connections_that_are_there_stay(clean: Cluster) -> None:
    async def deed() -> None:
        clock = FakeClock()
        async with served(clean, clock) as (webhook, port):
            await ready(webhook)
            trust = ssl.create_default_context()
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            clock.advance(276 * DAY)
            await webhook.renew()
            clock.advance(601)
            await webhook.renew()
            for _ in range(2):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200 OK" in await reader.readuntil(b"ok\n")
            writer.close()
            await writer.wait_closed()

    run(deed)


def test_while_the_api_server_is_away_it_serves_what_it_had(clean: Cluster) -> None:
    async def deed() -> None:
        clock = FakeClock()
        async with served(clean, clock) as (webhook, port):
            await ready(webhook)
            before = await shown(port)
            clock.advance(300 * DAY)
            await asyncio.to_thread(clean.faults.down)
            with pytest.raises(RunwatchError):
                await webhook.renew()
            await asyncio.to_thread(clean.faults.up)
            assert await shown(port) == before

    run(deed)


def laid(place: Path, certificate: bytes, key: bytes) -> None:
    """As the kubelet does it: a folder with both, and a link that changes at once."""
    fresh = place / f"..{len(list(place.iterdir()))}"
    fresh.mkdir()
    (fresh / "tls.crt").write_bytes(certificate)
    (fresh / "tls.key").write_bytes(key)
    (place / "..next").symlink_to(fresh.name)
    os.replace(place / "..next", place / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (place / name).is_symlink():
            (place / name).symlink_to(f"..data/{name}")


def issued(
    authority: trustme.CA, sort: trustme.KeyType = trustme.KeyType.ECDSA
) -> tuple[bytes, bytes]:
    made = authority.issue_cert(NAME, key_type=sort)
    return made.cert_chain_pems[0].bytes(), made.private_key_pem.bytes()


def test_files_that_change_are_served_and_broken_ones_are_not(
    clean: Cluster, tmp_path: Path
) -> None:
    """cert-manager renews them, the kubelet brings them; or somebody makes a mistake."""
    authority = trustme.CA()
    first, second = issued(authority), issued(authority)

    async def deed() -> None:
        laid(tmp_path, *first)
        files = {"certificate": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
        async with served(clean, FakeClock(), **files) as (webhook, port):
            await ready(webhook)
            trusted = authority.cert_pem.bytes().decode()
            assert await shown(port, trusted) == der(first[0].decode())
            for broken in ((first[0], second[1]), (b"", b""), (b"garbage", first[1])):
                laid(tmp_path, *broken)
                with pytest.raises(RunwatchError, match="certificate"):
                    await webhook.renew()
                assert await shown(port, trusted) == der(first[0].decode())
            laid(tmp_path, *second)
            await webhook.renew()
            assert await shown(port, trusted) == der(second[0].decode())
            (tmp_path / "tls.key").unlink()
            with pytest.raises(RunwatchError, match="tls.key"):
                await webhook.renew()
            assert await shown(port, trusted) == der(second[0].decode())

    since = len(clean.asked)
    run(deed)
    assert [each.path for each in clean.asked[since:]] == []


def test_a_key_of_another_sort_leaves_nothing_of_the_one_before(
    clean: Cluster, tmp_path: Path
) -> None:
    """OpenSSL keeps one certificate for each sort of key, and would go on to show the old one."""
    authority = trustme.CA()
    first, second = issued(authority), issued(authority, trustme.KeyType.RSA)

    async def deed() -> None:
        laid(tmp_path, *first)
        files = {"certificate": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
        async with served(clean, FakeClock(), **files) as (webhook, port):
            await ready(webhook)
            laid(tmp_path, *second)
            await webhook.renew()
            assert await shown(port) == der(second[0].decode())

    run(deed)


def test_it_looks_by_itself(clean: Cluster, tmp_path: Path) -> None:
    authority = trustme.CA()
    first, second = issued(authority), issued(authority)

    async def deed() -> None:
        laid(tmp_path, *first)
        settings = WebhookSettings(
            bind="127.0.0.1", port=0, certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key"
        )
        access = Access(clean.server, clean.account("runwatch", "runwatch-webhook"))
        async with serving(settings, access, look_seconds=0.02) as (webhook, port):
            await ready(webhook)
            laid(tmp_path, first[0], second[1])
            laid(tmp_path, *second)
            async with asyncio.timeout(100):
                while await shown(port) != der(second[0].decode()):
                    await asyncio.sleep(0.01)

    run(deed)


def test_no_handshake_before_there_is_a_certificate(clean: Cluster) -> None:
    async def deed() -> None:
        clean.faults.fail("GET", "/secrets/", 403, times=999)
        async with served(clean, FakeClock()) as (webhook, port):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await shown(port)
            clean.faults.clear()
            await ready(webhook)
            await shown(port)

    run(deed)


def test_a_key_with_a_password_asks_nobody(tmp_path: Path) -> None:
    """OpenSSL would ask the terminal, and the webhook would wait for ever."""
    certificate, _ = issued(trustme.CA())
    secret = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    with pytest.raises(RunwatchError, match="cannot be used"):
        Served().take(Pair(certificate, secret))


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    missing = FromFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    with pytest.raises(RunwatchError, match=r"tls\.crt"):
        asyncio.run(missing.look())
