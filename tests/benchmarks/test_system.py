import subprocess
import sys

import pytest

from benchmarks import system
from benchmarks.system import running_system

ANSWERS_READYZ = """
import http.server, json

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

with open("owlclaw.yaml") as settings:
    port = json.load(settings)["http"]["port"]
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""


@pytest.fixture(autouse=True)
def something_that_gets_ready(monkeypatch):
    """What is started in place of a runtime: it answers /readyz at the port of owlclaw.yaml, and makes no processes."""
    popen = subprocess.Popen

    def start(_command, **options):
        return popen([sys.executable, "-c", ANSWERS_READYZ], **options)

    monkeypatch.setattr(system.subprocess, "Popen", start)


def test_the_store_is_in_the_folder_of_the_application():
    with running_system({"bench": {}}) as running:
        assert running.store == running.folder / ".owlclaw" / "owlclaw.db"


def test_the_store_is_where_the_settings_say(tmp_path):
    with running_system({"bench": {}}, data_dir=str(tmp_path)) as running:
        assert running.store == tmp_path / "owlclaw.db"
