"""The files for clusters are what Ray's cluster launcher and the command line of `owlclaw node` take. No machine is started here."""

import copy
import re
import shlex
import subprocess

import pytest
import yaml
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

from actors.environment import node_environment
from serve.cli.node import PORT
from tests.docs.shell import check_owlclaw
from tests.docs.snippets import ROOT, table

FILES = ("cluster.yaml", "deploy/aws/cluster.yaml")
_VARIABLE = re.compile(r"`([\w.]+)`")


def config(file):
    return yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))


def starts(file, role):
    """Return the words after `owlclaw` of the command that starts Ray on machines of a role."""
    *_, ended, started = config(file)[f"{role}_start_ray_commands"]
    assert ended == "~/venv/bin/ray stop"
    words = shlex.split(started.rpartition(";")[2])
    assert words[0] == "~/venv/bin/owlclaw"
    return words[1:]


@pytest.mark.parametrize("file", FILES)
def test_rays_cluster_launcher_takes_the_file(file):
    prepared = prepare_config(config(file))

    validate_config(prepared)
    workers = [each for name, each in prepared["available_node_types"].items() if each.get("min_workers")]
    assert [each["min_workers"] for each in workers] == [2]
    assert prepared["max_workers"] >= 2
    for role in ("head", "worker"):
        assert prepared[f"{role}_start_ray_commands"] == config(file)[f"{role}_start_ray_commands"]


@pytest.mark.parametrize("file", FILES)
def test_a_misspelt_key_would_not_be_taken(file):
    broken = copy.deepcopy(config(file))
    broken["worker_start_commands"] = []

    with pytest.raises(ValidationError, match="worker_start_commands"):
        validate_config(prepare_config(broken))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("role", ["head", "worker"])
def test_the_start_commands_are_taken_by_the_command_line_and_return(file, role):
    words = starts(file, role)

    assert words[0] == "node"
    check_owlclaw([word.replace("$RAY_HEAD_IP", "10.0.0.1") for word in words])
    assert "--background" in words, "the launcher waits until a start command ends"


@pytest.mark.parametrize("file", FILES)
def test_the_head_gets_what_the_launcher_wrote_for_it_and_workers_find_the_head(file):
    head, worker = starts(file, "head"), starts(file, "worker")

    assert head[head.index("--") + 1 :] == ["--autoscaling-config=~/ray_bootstrap_config.yaml"]
    assert head[head.index("--port") + 1] == str(PORT)
    assert worker[worker.index("--address") + 1] == f"$RAY_HEAD_IP:{PORT}"
    assert "--head" not in worker


@pytest.mark.parametrize("file", FILES)
def test_a_worker_that_runs_already_is_drained_before_its_ray_is_stopped(file):
    drain, *_ = config(file)["worker_start_ray_commands"]
    program, *words = shlex.split(drain.partition("||")[0])

    assert program == "~/venv/bin/owlclaw"
    assert words[:2] == ["drain", "--here"]
    check_owlclaw(words)
    assert shlex.split(drain.partition("||")[2], comments=True) == ["true"], (
        "where nothing runs yet, or hangs, it goes on"
    )


def test_on_aws_a_new_wheel_replaces_the_version_that_is_there():
    installs = [each for each in config("deploy/aws/cluster.yaml")["setup_commands"] if "owlclaw_ray-*.whl" in each]

    assert installs == ["~/venv/bin/pip install /srv/owlclaw/owlclaw_ray-*.whl"], "without a condition"


@pytest.mark.parametrize("file", FILES)
def test_ray_down_which_runs_ray_by_its_name_finds_it_where_the_start_commands_do(file, tmp_path):
    *_, puts_on_path = config(file)["setup_commands"]
    for _ in range(2):
        subprocess.run(["bash", "-c", puts_on_path], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True)
    ray = tmp_path / "venv" / "bin" / "ray"
    ray.parent.mkdir(parents=True)
    ray.touch(mode=0o755)

    command = ["bash", "-c", "source ~/.bashrc; command -v ray"]  # as the launcher does
    found = subprocess.run(
        command, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == str(ray)
    assert len((tmp_path / ".bashrc").read_text().splitlines()) == 1


def test_the_documented_variables_are_those_that_are_set_on_a_machine_of_a_cluster():
    variables = node_environment(1, json_logs=False)
    rows = table("docs/operations.md", "variable", "value")

    named = [(_VARIABLE.findall(names), _VARIABLE.findall(values)) for names, values, _ in rows]
    documented = {name: values[place] for names, values in named for place, name in enumerate(names)}

    assert documented.items() <= variables.items()
    assert {name for name in variables if name.startswith(("RAY_AUTH", "RAY_health"))} <= documented.keys()
