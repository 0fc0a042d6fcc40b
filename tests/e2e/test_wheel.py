"""The package as users install it: a built wheel, in an environment that has its dependencies and no checkout.

The application of these tests has modules with the names of our packages beside it, as a user's may.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from serve.loopback import free_ports

ROOT = Path(__file__).parents[2]
READY = "ready in"
BREAKS_WHAT_IMPORTS_IT = (
    'raise SystemExit("a module of the application was imported in place of a package of OwlClaw")\n'
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], check=True, capture_output=True, text=True)
    [built] = folder.glob("owlclaw_ray-*.whl")
    return built


class Environment:
    """A virtual environment with the wheel; dependencies are those of the environment that runs the tests."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python, self._script = folder / "bin" / "python", folder / "bin" / "owlclaw"
        install = [sys.executable, "-m", "pip", f"--python={self.python}", "install", "--disable-pip-version-check"]
        subprocess.run([*install, "--no-deps", str(wheel)], check=True, capture_output=True, text=True)
        [packages] = (folder / "lib").glob("python*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read

    def start(self, folder: Path, *arguments: str, **options) -> subprocess.Popen[str]:
        """Start `owlclaw` as a shell in the folder would that has nothing set for Ray or OwlClaw, and for Python the current folder."""
        ours = ("RAY_", "PYTHON", "OWLCLAW_", "VIRTUAL_ENV")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(ours)}  # noqa: TID251
        environ["PYTHONPATH"] = "."
        return subprocess.Popen(
            [self._script, *arguments], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, **options
        )

    def run(self, folder: Path, *arguments: str) -> tuple[int, str]:
        """Run `owlclaw` and return its exit code and all that it said."""
        with self.start(folder, *arguments, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate(timeout=120)
        return process.returncode, said


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    return Environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def project(tmp_path, installed):
    code, said = installed.run(tmp_path, "init", "desk")
    assert code == 0, said
    folder = tmp_path / "desk"
    settings = (folder / "owlclaw.yaml").read_text()
    (folder / "owlclaw.yaml").write_text(settings.replace("8700", str(free_ports(1)[0])))
    (folder / "actors").mkdir()
    for module in ("serve.py", "actors/__init__.py"):
        (folder / module).write_text(BREAKS_WHAT_IMPORTS_IT)
    return folder


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    pages = {name for name in names if name.startswith(("console/templates/", "console/static/"))}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"owlclaw_ray", "actors", "serve", "console"}
    assert len(tops) == 5
    written = {
        str(each.relative_to(ROOT)) for part in ("templates", "static") for each in (ROOT / "console" / part).iterdir()
    }
    assert pages == written


def test_an_installed_package_serves_a_project_whose_own_modules_have_the_names_of_our_packages(installed, project):
    runtime = installed.start(project, "up", stderr=subprocess.STDOUT, start_new_session=True)
    assert runtime.stdout is not None
    try:
        said = []
        for line in runtime.stdout:
            said.append(line)
            if READY in line:
                break
        assert runtime.poll() is None, "".join(said)
        for name in ("actors", "serve.py"):
            assert any(f"{project / name}: " in line and f"(rename it, such as to my_{name})" in line for line in said)
        code, followed = installed.run(project, "trigger", "assistant", "--focus", "disk", "--follow")
        assert code == 0, followed
        assert "completed" in followed
    finally:
        runtime.terminate()
        runtime.communicate(timeout=120)
    assert runtime.returncode == 0


def test_without_a_checkout_bench_says_what_to_type(installed, project):
    code, said = installed.run(project, "bench")
    assert code == 1
    assert "pip install -e '.[bench]' && owlclaw bench" in said
    assert "Traceback" not in said
