"""Whether a webhook comes from its source (S5)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from owlclaw_ray.domain.signing import digest, key_of
from owlclaw_ray.domain.webhook import SIGNED_PART, SignatureForm, WebhookSource

_TIMESTAMP = re.compile(r"[0-9]{1,15}")


def unsigned(source: WebhookSource, headers: Mapping[str, str]) -> str:
    """Return why a webhook is refused whose signature is not there at all, nothing if it is."""
    header = source.signature.header
    return "" if header.lower() in headers else f"the header {header} is missing"


def refusal(source: WebhookSource, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """Return why a webhook is refused, or nothing if its source signed it. `headers` have lower-case names.

    All digests are compared with all secrets, in constant time.
    """
    form, why = source.signature, unsigned(source, headers)
    if why:
        return why
    given = headers[form.header.lower()]
    digests, timestamp = tuple(_digests(form, given)), _timestamp(form, headers)
    signed = signed_content(form, headers, body)
    why = ""
    if not digests:
        why = f"the header {form.header} has no digest of the form that is agreed on"
    elif form.timed and timestamp is None:
        why = "the time of the signature is missing, or is no number of seconds since 1970"
    elif signed is None:
        why = "a header that is signed is missing"
    elif not _matches(source, digests, signed):
        why = "the signature does not match"
    elif timestamp is not None and abs(now.timestamp() - timestamp) > form.tolerance:
        why = f"the time of the signature differs from ours by more than {form.tolerance:g} s"
    return why


def signed_content(form: SignatureForm, headers: Mapping[str, str], body: bytes) -> bytes | None:
    """Return the bytes that a source signs, or None if a header is missing that is among them."""
    timestamp, content, at = _timestamp(form, headers), bytearray(), 0
    for part in SIGNED_PART.finditer(form.signed):
        content += form.signed[at : part.start()].encode()
        at = part.end()
        match part[1]:
            case "body":
                content += body
            case "timestamp":
                content += str(timestamp).encode()
            case name:
                value = headers.get(name.removeprefix("header.").lower())
                if value is None:
                    return None
                content += value.encode("latin-1", "replace")
    return bytes(content + form.signed[at:].encode())


def _matches(source: WebhookSource, digests: tuple[str, ...], signed: bytes) -> bool:
    form, found = source.signature, False
    for secret in source.secrets:
        right = digest(key_of(secret, source.secret_form), signed, form.algorithm, form.encoding).encode()
        for each in digests:
            text = each.lower() if form.encoding == "hex" else each
            found |= hmac.compare_digest(text.encode("utf-8", "replace"), right)
    return found


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(","):
        key, _, value = pair.strip().partition("=")
        yield key, value


def _digests(form: SignatureForm, given: str) -> Iterator[str]:
    pairs = (value for key, value in _pairs(given) if key == form.digest_key)
    for each in pairs if form.digest_key else given.split():
        if each.startswith(form.prefix) and len(each) > len(form.prefix):
            yield each.removeprefix(form.prefix)


def _timestamp(form: SignatureForm, headers: Mapping[str, str]) -> int | None:
    if form.timestamp_key:
        pairs = dict(_pairs(headers.get(form.header.lower(), "")))
        text = pairs.get(form.timestamp_key, "")
    else:
        text = headers.get(form.timestamp_header.lower(), "") if form.timestamp_header else ""
    return int(text) if _TIMESTAMP.fullmatch(text) else None
