"""The certificate that the server shows under TLS: read, checked, and read again when its files are renewed."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from msgspec import Struct

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.settings import HttpSettings

_SOON = timedelta(days=14)


class Certificate(Struct, frozen=True):
    """A certificate with its key, which belong together, as HAProxy takes them."""

    pem: str
    """Certificates, then the key; without empty lines."""
    expires: datetime
    names: tuple[str, ...]
    """For what the certificate is valid: names without wildcards, and addresses."""

    def warning(self, now: datetime) -> str:
        """Return that it expires within two weeks, or nothing."""
        left = self.expires - now
        return f"expires in {left.days} days, at {self.expires:%Y-%m-%d %H:%M} UTC" if left < _SOON else ""


def read_certificate(http: HttpSettings, now: datetime) -> Certificate | None:
    """Return the certificate of the settings, None without one.

    Raises ConfigurationError if a file cannot be read, is no PEM, has a key with a password, or a key of another certificate, and if
    the certificate is not valid now.
    """
    if http.tls_certificate is None or http.tls_key is None:
        return None
    certificate, key = http.tls_certificate, http.tls_key
    written = _text(certificate, "tls_certificate")
    secret = written if key == certificate else _text(key, "tls_key")
    _check_pair(certificate, key)
    chain = x509.load_pem_x509_certificates(written.encode())
    first = chain[0]
    starts, expires = first.not_valid_before_utc, first.not_valid_after_utc
    if not starts <= now < expires:
        what = (
            f"{certificate} expired at {expires}" if now >= expires else f"{certificate} is not valid before {starts}"
        )
        raise ConfigurationError([Problem("http.tls_certificate", what, "put a renewed certificate in its place")])
    pem = written if key == certificate else f"{written}\n{secret}"
    return Certificate("\n".join(line for line in pem.splitlines() if line.strip()) + "\n", expires, _names(first))


def _text(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        fix = "name a file in PEM that the user of the runtime can read"
        raise ConfigurationError(
            [Problem(f"http.{setting}", f"{path} cannot be read: {error.strerror}", fix)]
        ) from error


def _check_pair(certificate: Path, key: Path) -> None:
    asked = []

    def password() -> str:
        asked.append(key)
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            what, fix = (
                f"{key} has a password",
                "name a file with the key alone, which only the runtime's user can read",
            )
        elif "KEY_VALUES_MISMATCH" in str(error):
            what, fix = f"{key} is not the key of {certificate}", "name the key that the certificate was made for"
        else:
            what, fix = f"{certificate} and {key} are no certificate and key in PEM: {error}", "name files in PEM"
        raise ConfigurationError([Problem("http.tls_key", what, fix)]) from error


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = (str(each) for each in found.get_values_for_type(x509.IPAddress))
    return (*(each for each in found.get_values_for_type(x509.DNSName) if "*" not in each), *addresses)
