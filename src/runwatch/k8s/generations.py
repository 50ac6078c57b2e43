"""Certificates of our own, in generations: pure functions of what is kept and of the time.

A generation is an authority with one certificate that it has signed; its key is forgotten at once.
A new generation is made long before the old one expires.  The API server first learns its
authority (both are in the bundle), then we serve its certificate, and then the old one goes: at no
moment do we serve what some API server does not trust yet.  Replicas with the same generations
and about the same time decide the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VERSION: Final = 1
LASTS: Final = timedelta(days=365)
RENEWED_BEFORE: Final = timedelta(days=90)
SETTLES: Final = timedelta(minutes=10)
"""So long after it was written, every API server knows an authority."""
_SKEW: Final = timedelta(hours=1)
"""A certificate is good a little earlier: clocks differ."""


@dataclass(frozen=True, slots=True)
class Generation:
    made_ns: int
    until_ns: int
    names: Sequence[str]
    authority: str
    certificate: str
    key: str


def make(names: Sequence[str], now_ns: int) -> Generation:
    now = datetime.fromtimestamp(now_ns / 1e9, UTC).replace(microsecond=0)
    ends = now + LASTS
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), _new_key()
    issuer = _named("runwatch-webhook-ca")
    authority = (
        _begun(issuer, issuer, authority_key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(_identifier(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _begun(_named("runwatch-webhook"), issuer, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False
        )
        .sign(authority_key, hashes.SHA256())
    )
    return Generation(
        now_ns,
        round(ends.timestamp()) * 1_000_000_000,
        tuple(names),
        authority.public_bytes(serialization.Encoding.PEM).decode(),
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        _pem(key),
    )


def renewed(kept: Sequence[Generation], names: Sequence[str], now_ns: int) -> list[Generation]:
    """What is to be kept now: the same if nothing is due."""
    good = [each for each in kept if each.until_ns > now_ns and set(names) <= set(each.names)]
    replaced_ns = _ns(2 * SETTLES)
    for at, each in enumerate(good[1:], 1):
        if now_ns - each.made_ns >= replaced_ns:
            good = [*good[at:]]
            break
    if not good or good[-1].until_ns - now_ns < _ns(RENEWED_BEFORE):
        good.append(make(names, now_ns))
    return good


def served(kept: Sequence[Generation], now_ns: int) -> Generation:
    """The newest that is known everywhere; the first of all there is no need to wait for."""
    settled = [each for each in kept if now_ns - each.made_ns >= _ns(SETTLES)]
    return settled[-1] if settled else kept[0]


def bundle(kept: Sequence[Generation]) -> str:
    return "".join(each.authority for each in kept)


def written(kept: Sequence[Generation]) -> str:
    return json.dumps({"version": VERSION, "generations": [asdict(each) for each in kept]})


def read(text: str) -> list[Generation]:
    """Nothing of what is damaged, and of a later version."""
    try:
        told = json.loads(text)
        if not isinstance(told, Mapping) or told.get("version") != VERSION:
            return []
        return [
            Generation(
                int(each["made_ns"]),
                int(each["until_ns"]),
                tuple(map(str, each["names"])),
                str(each["authority"]),
                str(each["certificate"]),
                str(each["key"]),
            )
            for each in told["generations"]
        ]
    except (ValueError, LookupError, TypeError):
        return []


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _identifier(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
    )


def _ns(span: timedelta) -> int:
    return round(span.total_seconds()) * 1_000_000_000
