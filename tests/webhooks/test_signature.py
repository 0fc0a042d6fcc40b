from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.webhook import Mapping, SecretForm, SignatureForm, WebhookSource
from owlclaw_ray.webhooks.signature import refusal

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
AT = int(NOW.timestamp())
BODY = '{"价格": 1}'.encode()
GITHUB = SignatureForm("X-Hub-Signature-256", prefix="sha256=")
STRIPE = SignatureForm("Stripe-Signature", digest_key="v1", timestamp_key="t", signed="{timestamp}.{body}")
SLACK = SignatureForm(
    "X-Slack-Signature", prefix="v0=", timestamp_header="X-Slack-Request-Timestamp", signed="v0:{timestamp}:{body}"
)
STANDARD = SignatureForm(
    "webhook-signature",
    encoding="base64",
    prefix="v1,",
    timestamp_header="webhook-timestamp",
    signed="{header.webhook-id}.{timestamp}.{body}",
)


def source(form, *secrets, secret_form=SecretForm.TEXT):
    return WebhookSource("shop", secrets or ("s3cret",), Mapping("assistant"), form, secret_form)


def hexdigest(content, secret=b"s3cret"):
    return hmac.new(secret, content, "sha256").hexdigest()


def stripe(at=AT, body=BODY, digest=None):
    return {"stripe-signature": f"t={at},v0=old,v1={digest or hexdigest(f'{at}.'.encode() + body)}"}


def test_the_example_of_githubs_documentation_is_right():
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    github = source(GITHUB, "It's a Secret to Everybody")

    assert refusal(github, {"x-hub-signature-256": f"sha256={digest}"}, b"Hello, World!", NOW) == ""
    assert refusal(github, {"x-hub-signature-256": f"sha256={digest.upper()}"}, b"Hello, World!", NOW) == ""
    assert refusal(github, {"x-hub-signature-256": f"sha256={digest}"}, b"Hello, World?", NOW) != ""


def test_slacks_way_can_be_said():
    content = b"v0:%d:" % AT + BODY
    headers = {"x-slack-signature": f"v0={hexdigest(content)}", "x-slack-request-timestamp": str(AT)}

    assert refusal(source(SLACK), headers, BODY, NOW) == ""
    assert refusal(source(SLACK), {**headers, "x-slack-request-timestamp": str(AT - 1)}, BODY, NOW) != ""


def test_standard_webhooks_can_be_said():
    key = bytes(range(24))
    mac = base64.b64encode(hmac.new(key, b"msg_1.%d." % AT + BODY, "sha256").digest()).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(AT), "webhook-signature": f"v1a,no v1,bad v1,{mac}"}
    standard = source(STANDARD, "whsec_" + base64.b64encode(key).decode(), secret_form=SecretForm.BASE64)

    assert refusal(standard, headers, BODY, NOW) == ""
    assert refusal(standard, {**headers, "webhook-id": "msg_2"}, BODY, NOW) == "the signature does not match"
    del headers["webhook-id"]
    assert refusal(standard, headers, BODY, NOW) == "a header that is signed is missing"


@pytest.mark.parametrize(("seconds", "taken"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)])
def test_a_signature_counts_within_its_window_in_either_direction(seconds, taken):
    why = refusal(source(STRIPE), stripe(AT + seconds), BODY, NOW)

    assert (why == "") is taken
    assert taken or why == "the time of the signature differs from ours by more than 300 s"


def test_an_old_signature_with_a_new_time_is_none():
    old = hexdigest(b"%d." % (AT - 900) + BODY)

    assert refusal(source(STRIPE), stripe(AT, digest=old), BODY, NOW) == "the signature does not match"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "the header Stripe-Signature is missing"),
        ({"stripe-signature": ""}, "the header Stripe-Signature has no digest"),
        ({"stripe-signature": f"t={AT},v1="}, "the header Stripe-Signature has no digest"),
        ({"stripe-signature": "v1=00"}, "the time of the signature is missing"),
        ({"stripe-signature": "t=soon,v1=00"}, "the time of the signature is missing"),
        ({"stripe-signature": f"t={AT},v1=é"}, "the signature does not match"),
        ({"stripe-signature": f"t={AT},v1=00"}, "the signature does not match"),
    ],
)
def test_what_is_wrong_with_a_signature_is_said(headers, why):
    assert refusal(source(STRIPE), headers, BODY, NOW).startswith(why)


def test_either_of_two_secrets_may_have_signed():
    signed = {"x-hub-signature-256": f"sha256={hexdigest(BODY, b'old')}"}

    assert refusal(source(GITHUB, "new", "old"), signed, BODY, NOW) == ""
    assert refusal(source(GITHUB, "new"), signed, BODY, NOW) == "the signature does not match"


def test_every_digest_is_compared_in_constant_time(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    right = hexdigest(BODY, b"a")

    assert (
        refusal(source(replace(GITHUB, prefix=""), "a", "b"), {"x-hub-signature-256": f"{right} 00"}, BODY, NOW) == ""
    )
    assert len(compared) == 4


def test_other_hashes_can_be_agreed_on():
    form = replace(GITHUB, algorithm="sha512", encoding="base64", prefix="")
    mac = base64.b64encode(hmac.new(b"s3cret", BODY, hashlib.sha512).digest()).decode()

    assert refusal(source(form), {"x-hub-signature-256": mac}, BODY, NOW) == ""
    assert refusal(source(form), {"x-hub-signature-256": mac.swapcase()}, BODY, NOW) != ""


def test_secrets_are_not_shown():
    assert "s3cret" not in repr(source(GITHUB))
