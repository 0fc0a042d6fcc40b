"""The Dockerfile holds what the package is built from, and the compose file starts it as the page says. No image is built here."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml

from owlclaw_ray.configuration.server_location import DEFAULT_PORT
from owlclaw_ray.settings import load_settings
from tests.docs.shell import check_owlclaw
from tests.docs.snippets import ROOT

FILE = ROOT / "deploy/Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["owlclaw"]
PACKAGES = ("owlclaw_ray", "actors", "serve", "console")


def instructions():
    """Return the stages, each a list of instructions and what they are given; lines that end in a backslash go on."""
    stages = []
    for line in FILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest))
    return stages


def copied():
    """Return what is copied from the repository."""
    copies = [rest.split()[:-1] for stage in instructions() for name, rest in stage if name == "COPY"]
    return [source for sources in copies for source in sources if not sources[0].startswith("--from=")]


def given(name):
    """Return what the last stage says to an instruction, which it has once."""
    [found] = [rest for each, rest in instructions()[-1] if each == name]
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The package, built from what is copied alone."""
    folder = tmp_path_factory.mktemp("src")
    for source in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, folder / source)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=folder, check=True)
    [built] = (folder / "dist").glob("*.whl")
    return built


def test_what_is_copied_is_enough_for_a_wheel_with_all_modules_and_the_command(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        [entries] = [name for name in names if name.endswith("entry_points.txt")]
        commands = opened.read(entries).decode()

    expected = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert expected <= names
    assert f"owlclaw = {PROJECT['scripts']['owlclaw']}" in commands


def test_what_is_copied_is_what_the_builder_is_sent():
    sent = (ROOT / "deploy/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert [line.removeprefix("!") for line in sent if line.startswith("!")] == copied()
    assert "*" in sent


def test_every_stage_has_the_oldest_python_that_the_package_takes():
    bases = {rest.split()[0] for stage in instructions() for name, rest in stage if name == "FROM"}

    assert bases == {f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"}


def test_the_container_runs_the_runtime_as_a_user_without_rights_in_its_data_folder(tmp_path):
    names = [name for name, _ in instructions()[-1]]
    environ = dict(re.findall(r"(\w+)=(\S+)", given("ENV")))

    assert given("USER") == "owlclaw"
    assert names.index("USER") > max(place for place, name in enumerate(names) if name in {"RUN", "COPY"})
    assert json.loads(given("ENTRYPOINT")) == ["owlclaw"]
    check_owlclaw(json.loads(given("CMD")))
    data_dir = load_settings(tmp_path, {"OWLCLAW_DATA_DIR": environ["OWLCLAW_DATA_DIR"]}).data_dir
    assert str(data_dir) == given("VOLUME")
    assert f"--mode=0700 {data_dir} " in given("RUN")


def test_the_service_mounts_what_the_image_expects_and_asks_a_route_that_there_is(api):
    folder, data = SERVICE["volumes"]
    [route] = re.findall(rf"http://127\.0\.0\.1:{DEFAULT_PORT}(/\w+)", str(SERVICE["healthcheck"]["test"]))

    assert SERVICE["image"] == f"owlclaw:{PROJECT['version']}"
    assert SERVICE["build"]["dockerfile"] == FILE.relative_to(ROOT).as_posix()
    assert (folder["target"], data["target"]) == (given("WORKDIR"), given("VOLUME"))
    assert "get" in api.openapi()["paths"][route]
    assert SERVICE["profiles"] == ["owlclaw"], "docker compose up alone starts what is beside the runtime"
