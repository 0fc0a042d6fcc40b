"""The certificate is checked before anything starts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.settings import HttpSettings
from serve.tls import read_certificate
from tests.certificates import make_certificate

NOW = SystemClock().now()


def settings(files, **more):
    return HttpSettings(tls_certificate=files.certificate, tls_key=files.key, **more)


def test_a_certificate_and_its_key_are_one_file_for_haproxy_with_the_names_that_they_are_for(tmp_path):
    files = make_certificate(tmp_path)
    files.certificate.write_text("\n\n" + files.certificate.read_text() + "\n" + files.authority.read_text())

    found = read_certificate(settings(files), NOW)

    assert (found.names, found.warning(NOW)) == (("localhost", "127.0.0.1"), "")
    assert (found.pem.count("BEGIN CERTIFICATE"), found.pem.count("PRIVATE KEY-----\n")) == (2, 2)
    assert "\n\n" not in found.pem
    assert read_certificate(HttpSettings(), NOW) is None


@pytest.mark.parametrize(("days", "said"), [(13, "expires in 1"), (15, "")])
def test_a_certificate_that_expires_within_two_weeks_is_told(tmp_path, days, said):
    found = read_certificate(settings(make_certificate(tmp_path, life=timedelta(days=days))), NOW)

    assert found.warning(NOW)[: len("expires in 1")] == said


def spoil_expired(files, folder):
    make_certificate(folder, life=timedelta(hours=-1))
    return "expired at"


def spoil_key(files, folder):
    (folder / "other").mkdir()
    other = make_certificate(folder / "other")
    files.key.write_bytes(other.key.read_bytes())
    return "is not the key of"


def spoil_certificate(files, folder):
    files.certificate.write_text("no PEM")
    return "are no certificate and key in PEM"


def spoil_presence(files, folder):
    files.key.unlink()
    return "cannot be read: No such file or directory"


def spoil_password(files, folder):
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
    return "has a password"


@pytest.mark.parametrize("spoil", [spoil_expired, spoil_key, spoil_certificate, spoil_presence, spoil_password])
def test_what_cannot_be_used_is_said_with_what_to_do(tmp_path, spoil):
    files = make_certificate(tmp_path)
    said = spoil(files, tmp_path)

    with pytest.raises(ConfigurationError, match=said) as error:
        read_certificate(settings(files), NOW)

    assert error.value.problems[0].fix
