"""Breaks what each correctness property protects, and sees the tests of the property fail: `python -m tests.mutants [NUMBER …]`.

It works on a copy of the tree in a temporary folder. Hypothesis begins from the same seed each time, so that a mutant that is
killed today is killed tomorrow. Ends with 1 if a mutant survives, or if the tests fail without one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
_SEED = "--hypothesis-seed=15"
_LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__", "results", "node_modules", "dist", "build")
_FAILED = re.compile(r"\b\d+ failed\b|^\++ Timeout \+", re.MULTILINE)
"""What pytest says in the end, and pytest-timeout before it ends the process."""
_LIMIT_SECONDS = 900
"""Of the tests of one mutant: one that hangs is killed, too."""


def main(wanted: Sequence[str]) -> int:
    """Run the mutants of these properties, or of all; return the exit code."""
    numbers = {int(each) for each in wanted}
    mutants = [each for each in MUTANTS if not numbers or each.number in numbers]
    with tempfile.TemporaryDirectory(prefix="owlclaw-mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=_LEFT_BEHIND)
        if not _pass_without(tree, mutants):
            return 1
        survivors = [each for each in mutants if not _killed(tree, each)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants were killed")
    for each in survivors:
        print(f"survived: property {each.number:02}, {each.breaks} ({each.file})")
    return 1 if survivors else 0


def _pass_without(tree: Path, mutants: Iterable[Mutant]) -> bool:
    """Return whether the tests pass as long as nothing is broken: else their failures would say nothing."""
    tests = sorted({test for each in mutants for test in each.tests})
    code, output = _run(tree, tests, " or ".join(sorted({each.selector for each in mutants})))
    if code:
        print(f"the tests fail without any mutant:\n{output[-4_000:]}")
    return code == 0


def _killed(tree: Path, mutant: Mutant) -> bool:
    path = tree / mutant.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(mutated(sound, mutant), encoding="utf-8")
    try:
        code, output = _run(tree, mutant.tests, mutant.selector)
    finally:
        path.write_text(sound, encoding="utf-8")
    killed = code == 1 and _FAILED.search(output) is not None
    print(
        f"property {mutant.number:02}: {mutant.breaks}: {'killed' if killed else f'SURVIVED (pytest ended with {code})'}"
    )
    return killed


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the mutant in it; raises ValueError unless its text is there exactly once."""
    found = source.count(mutant.text)
    if found != 1:
        raise ValueError(
            f"{mutant.file} has {mutant.text!r} {found} times: say in tests/mutants/mutants.py what to break now"
        )
    return source.replace(mutant.text, mutant.becomes)


def _run(tree: Path, tests: Sequence[str], selector: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", _SEED, "-k", selector, *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: TID251 - the tests' own
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "1 failed: it took too long"
    return ended.returncode, ended.stdout + ended.stderr


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main(sys.argv[1:]))
