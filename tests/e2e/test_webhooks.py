from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import httpx
import pytest
import yaml

from owlclaw_ray.client import verify_callback

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SECRET, KEY = "swordfish-4711", base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def receiver():
    """Takes callbacks: fails the first, and puts the others into a queue."""
    told: Queue = Queue()

    class Receiver(BaseHTTPRequestHandler):
        failed = False

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204 if Receiver.failed else 503)
            self.end_headers()
            if Receiver.failed:
                told.put((dict(self.headers), body))
            Receiver.failed = True

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/ended", told
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_triggers_a_run_whose_end_is_told_and_no_secret_is_written_down(installation, receiver, monkeypatch):
    url, told = receiver
    path = installation.folder / "owlclaw.yaml"
    source = {"secret": "${SHOP_SECRET}", "agent": "clerk:{body.who}", "callback_url": url, "dedupe": "{body.id}"}
    callbacks = {"secret": "${CALLBACK_KEY}", "allowed_networks": ["127.0.0.0/8"], "backoff_seconds": 0.1}
    settings = yaml.safe_load(path.read_text()) | {"webhooks": {"sources": {"shop": source}, "callbacks": callbacks}}
    path.write_text(yaml.safe_dump(settings))
    installation.define("clerk", {"turns": [{"text": "done"}]})
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    monkeypatch.setenv("CALLBACK_KEY", KEY)
    installation.up()

    body = b'{"who": "ada", "id": 1}'
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    address = f"http://127.0.0.1:{installation.port}/v1/webhooks/shop"
    answers = [httpx.post(address, content=body, headers={"X-Signature-256": signature}) for _ in range(2)]
    refused = httpx.post(address, content=body, headers={"X-Signature-256": "00"})
    headers, said = told.get(timeout=60)

    assert [answer.status_code for answer in (*answers, refused)] == [202, 200, 401]
    with installation.client() as client:
        secrets = client.callback_secrets()
    finished = verify_callback(headers, said, secrets, datetime.now(UTC))  # noqa: TID251 - the runtime's clock is the system's
    run_id = answers[0].json()["run_id"]
    assert (finished["data"]["run_id"], finished["data"]["agent"]) == (run_id, "clerk:ada")
    with installation.client() as client:
        while (callback := client.callbacks(run=run_id)[0])["status"] != "delivered":
            pass
        assert [each["status"] for each in client.deliveries()] == ["refused", "triggered"]
        (result,) = client.submit_batch([{"agent": "clerk:bob"}])
    assert callback["attempts"] == 2
    assert result["status"] == 202
    assert "triggered" in installation.owlclaw("webhooks", "deliveries")

    assert installation.interrupt() == 0
    data = installation.folder / ".owlclaw"
    written = [path for path in data.rglob("*") if path.is_file()]
    assert not [path for path in written for secret in (SECRET, KEY, *secrets) if secret.encode() in path.read_bytes()]
    assert not any(secret in "".join(installation.said) for secret in (SECRET, KEY, *secrets))
