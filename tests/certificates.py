"""Certificates for real TLS: an authority of our own, and what it signs."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from owlclaw_ray.kernel.system_clock import SystemClock

LIFE = timedelta(days=90)


class Files(Struct, frozen=True):
    """A certificate for localhost and 127.0.0.1 and its key on disk, and whom clients have to trust."""

    certificate: Path
    key: Path
    authority: Path

    @property
    def trusting(self) -> ssl.SSLContext:
        """Return what a client trusts who trusts the authority alone."""
        return ssl.create_default_context(cafile=str(self.authority))


def make_certificate(folder: Path, name: str = "localhost", life: timedelta = LIFE, serial: int = 2) -> Files:
    """Write a certificate with its key and a new authority over those that are there; it is valid from a day ago."""
    start = SystemClock().now() - timedelta(days=1)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
    authority = (
        _begun(authority_name, authority_name, start, start + timedelta(days=400), 1)
        .public_key(authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    own_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _begun(own_name, authority_name, start, start + timedelta(days=1) + life, serial)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    files = Files(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return files


def _begun(
    subject: x509.Name, issuer: x509.Name, start: datetime, end: datetime, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(end)
    )
