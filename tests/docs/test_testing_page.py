"""The tests that docs/testing.md shows, run as a reader would run them."""

import subprocess
import sys

from tests.docs.snippets import ROOT, snippets


def test_the_tests_of_the_page_pass(tmp_path):
    shown = [each for each in snippets("python") if each.mark and each.mark[0] == "tested"]
    for snippet in shown:
        (tmp_path / snippet.mark[1]).write_text(snippet.text, encoding="utf-8")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert [each.document for each in shown] == [ROOT / "docs/testing.md"] * 2
    assert ended.returncode == 0, ended.stdout
    assert f"{len(shown)} passed" in ended.stdout
