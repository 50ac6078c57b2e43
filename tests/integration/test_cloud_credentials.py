"""The way to Google's services with TLS and credentials, as far as it can be gone here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.cloud_services import CloudServices, handlers

PROGRAM = """
import sys
from runwatch.head.cloud.clients import Connection, Place
from runwatch.head.cloud.failures import LOGGING
from runwatch.head.forward.forwarder import Trouble

connection = Connection(Place(LOGGING, sys.argv[2], sys.argv[1], timeout_seconds=20.0))
entry = {"log_name": "projects/mine/logs/x", "insert_id": "1", "json_payload": {"a": 1},
         "timestamp": {"seconds": 1}, "resource": {"type": "global"}}
try:
    connection.ready()
    connection.call(lambda client, seconds: client.write_log_entries(
        {"entries": [entry]}, retry=None, timeout=seconds))
    print("sent as", connection.project)
except Trouble as trouble:
    print(trouble, "->", trouble.todo)
connection.let_go()
"""


class Authority:
    """A key, and a certificate for localhost that it has signed itself."""

    def __init__(self, folder: Path) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
            .sign(key, hashes.SHA256())
        )
        self.key = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self.file = folder / "roots.pem"
        self.file.write_bytes(self.certificate)


@contextmanager
def with_tls(services: CloudServices, authority: Authority) -> Iterator[list[str]]:
    """Yields the `authorization` of each request."""
    shown: list[str] = []

    def note(request: object, context: grpc.ServicerContext) -> None:
        metadata = dict(context.invocation_metadata())
        shown.append(str(metadata.get("authorization", "")))

    services.fault = note
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(handlers(services))
    credentials = grpc.ssl_server_credentials([(authority.key, authority.certificate)])
    services.port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield shown
    finally:
        server.stop(None).wait()


def run(services: CloudServices, authority: Authority, credentials: Path, project: str = "") -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GOOGLE_")} | {
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority.file),
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"localhost:{services.port}", project],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_service_account_is_asked_and_its_project_is_the_default(tmp_path: Path) -> None:
    services, authority = CloudServices(), Authority(tmp_path)
    account = {
        "type": "service_account",
        "project_id": "mine",
        "private_key_id": "k",
        "private_key": authority.key.decode(),
        "client_email": "head@mine.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://localhost:1/nobody-asks",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    with with_tls(services, authority) as shown:
        assert run(services, authority, file) == "sent as mine\n"
    assert len(services.entries) == 1
    assert [each.startswith("Bearer ey") for each in shown] == [True]


class Denies(BaseHTTPRequestHandler):
    """A proxy that lets nobody out: the service that renews tokens is not reached."""

    def do_CONNECT(self) -> None:
        self.send_error(403, "nobody may leave")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.soak
def test_credentials_that_cannot_be_renewed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, authority = CloudServices(), Authority(tmp_path)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Denies)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("NO_PROXY", "localhost")
    user = {
        "type": "authorized_user",
        "client_id": "c",
        "client_secret": "s",
        "refresh_token": "old",
        "quota_project_id": "mine",
    }
    file = tmp_path / "user.json"
    file.write_text(json.dumps(user))
    try:
        with with_tls(services, authority) as shown:
            said = run(services, authority, file, "mine")
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
    assert "oauth2.googleapis.com" in said and "credentials" in said.partition("->")[2]
    assert (services.entries, shown) == ({}, [])
