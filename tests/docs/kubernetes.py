"""The files of deploy/kuberay and the chart, as objects: read by themselves, or as their tools render them."""

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from tests.docs.snippets import ROOT

KUBERAY = ROOT / "deploy/kuberay"
CHART = ROOT / "deploy/helm/owlclaw"
OVERLAYS = sorted((KUBERAY / "overlays").iterdir())
HELM = os.environ.get("HELM") or shutil.which("helm")  # noqa: TID251 - a program of the developer's
CRDS = os.environ.get("KUBERAY_CRDS")  # noqa: TID251 - a folder of the developer's
_OPEN = "x-kubernetes-preserve-unknown-fields"


def objects(text):
    """Return what a text with several YAML documents describes, by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def base():
    """Return the objects of the base as they are written; those that kustomize makes are not among them."""
    folder = KUBERAY / "base"
    return objects("\n---\n".join((folder / each).read_text() for each in kustomization(folder)["resources"]))


def kustomization(folder):
    return yaml.safe_load((folder / "kustomization.yaml").read_text())


def rendered_by_kustomize(folder):
    command = ["kubectl", "kustomize", str(folder)]
    return objects(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def helm(*arguments, release="owlclaw"):
    """Return how helm ended that was to render the chart."""
    command = [HELM, "template", release, str(CHART), "--kube-version", "1.32.0", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def rendered_by_helm(*arguments, release="owlclaw"):
    ended = helm(*arguments, release=release)
    assert ended.returncode == 0, ended.stderr
    return objects(ended.stdout)


def groups(service):
    """Return the groups of machines of a RayService: the head's, and the workers'."""
    cluster = service["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def container(group):
    [only] = group["template"]["spec"]["containers"]
    return only


def ray_options(group):
    """Return the words that a shell makes of the options with which KubeRay starts Ray."""
    words = []
    for name, value in group["rayStartParams"].items():
        flag = value == "true" and name not in {"include-dashboard", "include-log-monitor"}
        words.append(f"--{name}" if flag else f"--{name}={value}")
    return shlex.split(" ".join(words))


def slots(group):
    [found] = [word.partition("=")[2] for word in ray_options(group) if word.startswith("--resources=")]
    return json.loads(found)


def environment(path):
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def strict(schema):
    """Return a schema of a custom resource that refuses what it does not name, as the API server prunes it."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get(_OPEN) and isinstance(schema["properties"], dict):
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
        made.pop("anyOf", None)
    made.pop("format", None)
    return made


def custom_resource_errors(found):
    """Return what the definition in KUBERAY_CRDS says against an object."""
    validator = _validator(found["apiVersion"], found["kind"])
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


@cache
def _validator(api_version, kind):
    [text] = [text for path in Path(CRDS).glob("*.yaml") if f"\n    kind: {kind}\n" in (text := path.read_text())]
    definition = yaml.load(text, yaml.CSafeLoader)
    version = api_version.rpartition("/")[2]
    [schema] = [each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"] if each["name"] == version]
    made = strict(schema)
    made["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(made)


def names_in(found, *keys):
    """Return the values of such keys, however deep."""
    if isinstance(found, dict):
        here = [value for key, value in found.items() if key in keys and not isinstance(value, dict)]
        return here + [each for value in found.values() for each in names_in(value, *keys)]
    return [each for value in found for each in names_in(value, *keys)] if isinstance(found, list) else []


def pointed(found, pointer):
    """Return what a JSON pointer names; raises if there is nothing."""
    for word in pointer.strip("/").split("/"):
        found = found[int(word)] if re.fullmatch(r"\d+", word) else found[word]
    return found
