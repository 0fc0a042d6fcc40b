"""What `owlclaw up` says of the console: on a terminal a link that signs in, and in what may be kept nothing secret."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx
import pytest

from tests.console.conftest import token_of
from tests.e2e.conftest import _environment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@contextmanager
def up(installation, opened):
    """What `owlclaw up` says of the console on a terminal or into a pipe, as it is `opened`, while it runs; then Ctrl-C is pressed."""
    ours, theirs = opened()
    process = subprocess.Popen(
        [sys.executable, "-m", "serve.cli", "up"],
        cwd=installation.folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=_environment() | installation.variables,
        start_new_session=True,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as output:
        said = b""
        while not (found := re.search(r"console: (.+?)\r?\n", said.decode(errors="replace"))):
            said += output.read(4096)
        try:
            yield found[1]
        finally:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(OSError):  # so Linux says that nobody has a terminal open any more
                while output.read(4096):
                    pass
            process.wait(90)
    assert process.returncode == 0


def test_a_terminal_is_shown_a_link_that_signs_in_once_and_a_pipe_only_the_address(installation):
    installation.define("watch", {"turns": [{"text": "done"}]})
    url = f"http://127.0.0.1:{installation.port}/console"
    key = installation.owlclaw("keys", "create", "--first").strip()
    installation.variables = {"OWLCLAW_API_KEY": key}

    with up(installation, os.openpty) as said:
        assert re.fullmatch(rf"{re.escape(url)}/sign-in\?link=yes#\S+ \(signs in once, within a minute\)", said), said
        assert key not in said
        code = said.split()[0].partition("#")[2]
        answers = []
        for _ in range(2):
            with httpx.Client(base_url=url, headers={"Accept": "text/html"}) as browser:
                form = token_of(browser.get("/sign-in").text)
                sent = browser.post("/sign-in", data={"token": form, "code": code}, headers={"Origin": url[:-8]})
                answers.append((sent.status_code, browser.get("/runs").status_code))
        assert answers == [(303, 200), (401, 303)]

    with up(installation, os.pipe) as said:
        assert said == url
