"""The files for Kubernetes are what their tools, KubeRay's schema, Ray and this runtime take. No cluster is started here."""

import copy
import json
import re
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import yaml
from packaging.version import Version
from ray._private.ray_constants import RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S
from ray.scripts.scripts import start
from ray.serve.schema import ServeDeploySchema

from actors.environment import HA_PROXY, node_environment
from actors.nodes import _TOOL_RESOURCES
from owlclaw_ray.settings import ShutdownSettings, load_runtime_settings
from serve.origin_check import OriginCheck
from tests.docs import kubernetes
from tests.docs.kubernetes import (
    CHART,
    CRDS,
    HELM,
    KUBERAY,
    OVERLAYS,
    base,
    container,
    groups,
    helm,
    kustomization,
    ray_options,
    rendered_by_helm,
    rendered_by_kustomize,
    slots,
)
from tests.docs.snippets import ROOT

SERVICE = base()["RayService", "owlclaw"]
GROUPS = groups(SERVICE)
DRAIN_SECONDS = ShutdownSettings().grace_seconds
ENDING_SECONDS = RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S
MONITOR = yaml.safe_load((KUBERAY / "components/monitoring/servicemonitor.yaml").read_text())
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm, on the PATH or named by HELM")
needs_crds = pytest.mark.skipif(CRDS is None, reason="needs KubeRay's CRDs in the folder that KUBERAY_CRDS names")


def of_each_machine(function):
    return pytest.mark.parametrize("group", GROUPS, ids=["head", "worker"])(function)


def pod(group):
    return group["template"]["spec"]


def test_ray_serve_takes_the_application_which_is_ours_and_reads_the_mounted_configuration():
    config = ServeDeploySchema.model_validate(yaml.safe_load(SERVICE["spec"]["serveConfigV2"]))

    [application] = config.applications
    assert (application.import_path, application.route_prefix) == ("serve.declarative:application", "/")
    [mounted] = [each["mountPath"] for each in container(GROUPS[0])["volumeMounts"] if each["name"] == "app"]
    assert application.args == {"config": f"{mounted}/owlclaw.yaml"}
    ports = {each["name"]: each["containerPort"] for each in container(GROUPS[1])["ports"]}
    assert (config.http_options.host, config.http_options.port) == ("0.0.0.0", ports["serve"])


@of_each_machine
def test_every_machine_offers_all_slots_and_ray_takes_its_options(group):
    context = start.make_context("start", ["--address=head:6379", *ray_options(group)])
    context.close()

    assert slots(group).keys() == _TOOL_RESOURCES.keys(), "the runtime refuses a machine that lacks one"
    assert all(number >= 1 for number in slots(group).values()), "Ray does not offer what is 0"
    assert context.params["disable_usage_stats"] is True
    assert group["labels"] == {"owlclaw-version": version("owlclaw-ray")}


def test_the_head_runs_none_of_other_peoples_tasks_and_knows_its_machines_after_a_restart():
    cluster = SERVICE["spec"]["rayClusterConfig"]

    assert GROUPS[0]["rayStartParams"]["num-cpus"] == "0"
    host, _, port = cluster["gcsFaultToleranceOptions"]["redisAddress"].partition(":")
    [offered] = base()["Service", host]["spec"]["ports"]
    assert offered["port"] == int(port)


@pytest.mark.parametrize("folder", [KUBERAY / "base", CHART], ids=["kustomize", "helm"])
def test_ray_gets_the_variables_on_every_machine_that_owlclaw_node_sets(folder):
    needed = node_environment(1, json_logs=True) | HA_PROXY
    mode = needed.pop("RAY_AUTH_MODE")
    written = kubernetes.environment(folder / "node.env")

    assert written == needed | {"OWLCLAW_DATA_DIR": "/data"}
    assert SERVICE["spec"]["rayClusterConfig"]["authOptions"]["mode"] == mode, "KubeRay sets the variable from it"
    for group in GROUPS:
        assert {"configMapRef": {"name": "owlclaw-node"}} in container(group)["envFrom"]


def test_a_new_cluster_stands_beside_the_old_one_for_longer_than_the_old_one_needs_to_hand_over():
    spec = SERVICE["spec"]
    grace = {pod(group)["terminationGracePeriodSeconds"] for group in GROUPS}

    assert spec["upgradeStrategy"]["type"] == "NewCluster"
    assert min(grace) > DRAIN_SECONDS + ENDING_SECONDS
    assert spec["rayClusterDeletionDelaySeconds"] > max(grace)
    for group in GROUPS:
        *command, seconds = container(group)["lifecycle"]["preStop"]["exec"]["command"]
        assert command == ["owlclaw", "drain", "--here", "--timeout"]
        assert DRAIN_SECONDS < int(seconds) < pod(group)["terminationGracePeriodSeconds"] - ENDING_SECONDS


@of_each_machine
def test_a_machine_has_the_user_of_the_image_no_rights_and_writes_to_volumes_only(group):
    [uid] = re.findall(r"--uid (\d+)", (ROOT / "deploy/Dockerfile").read_text())
    ours, general = container(group)["securityContext"], pod(group)["securityContext"]
    mounts = {each["mountPath"]: each["name"] for each in container(group)["volumeMounts"]}
    writable = {each["name"] for each in pod(group)["volumes"] if "emptyDir" in each}

    assert general["runAsNonRoot"] is True
    assert general["runAsUser"] == general["fsGroup"] == int(uid)
    assert (ours["allowPrivilegeEscalation"], ours["readOnlyRootFilesystem"]) == (False, True)
    assert ours["capabilities"] == {"drop": ["ALL"]}
    assert pod(group)["automountServiceAccountToken"] is False
    assert {mounts[path] for path in ("/tmp", "/data", "/home/owlclaw")} <= writable


@of_each_machine
def test_probes_ask_by_http_because_the_image_has_no_wget(group):
    for name in ("livenessProbe", "readinessProbe"):
        assert container(group)[name].keys() & {"httpGet", "exec", "tcpSocket"} == {"httpGet"}, name


def test_secrets_are_named_and_nowhere_written():
    found = [kind for kind, _ in base()]
    values = [each for group in GROUPS for each in container(group)["env"] if "value" in each]

    assert "Secret" not in found
    assert {each["name"] for each in values} == {"OWLCLAW_HTTP__ALLOWED_HOSTS"}
    page = (ROOT / "docs/cluster.md").read_text()
    for name, key in (
        ("owlclaw-store", "url"),
        ("owlclaw-ray-token", "auth_token"),
        ("owlclaw-valkey", "password"),
    ):
        assert re.search(rf"create secret generic {name} --from-file={key}=", page), name


@of_each_machine
def test_the_mounted_files_are_an_application(group, tmp_path):
    [maps] = [each for each in kustomization(KUBERAY / "base")["configMapGenerator"] if each["name"] == "owlclaw-app"]
    [volume] = [each["configMap"] for each in pod(group)["volumes"] if each["name"] == "app"]
    sources = dict(each.split("=", 1) for each in maps["files"])
    assert volume["name"] == maps["name"]
    assert {each["key"] for each in volume["items"]} == sources.keys()
    written, mounted = tmp_path / "written", tmp_path / "mounted"
    for each in volume["items"]:
        path = written / each["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(KUBERAY / "base" / sources[each["key"]], path)
    mounted.mkdir()
    for path in written.iterdir():  # as kubelet mounts a ConfigMap: links, to be changed at once
        (mounted / path.name).symlink_to(path)

    variables = {"OWLCLAW_DATA_DIR": str(tmp_path / "data"), "ANTHROPIC_API_KEY": "k"}
    settings = load_runtime_settings(mounted, variables)

    assert [each.name for each in sorted(settings.agents_dir.iterdir())] == ["assistant"]
    assert settings.log.format == "json"


def test_the_api_answers_to_the_names_by_which_it_is_asked():
    [written] = {
        each["value"]
        for group in GROUPS
        for each in container(group)["env"]
        if each["name"] == "OWLCLAW_HTTP__ALLOWED_HOSTS"
    }
    hosts = json.loads(written.replace("$(POD_NAMESPACE)", "there"))
    relabelled = {each.get("targetLabel"): each for each in MONITOR["spec"]["endpoints"][0]["relabelings"]}
    asked = relabelled["__address__"]["replacement"].replace("$1", "there")

    check = OriginCheck(SimpleNamespace(), hosts)

    assert check._named(asked)[1]
    assert check._named("owlclaw-serve-svc:8000")[1]
    assert not check._named("elsewhere:8000")[1]


def test_only_the_cluster_the_operator_and_named_clients_reach_it_and_names_are_found():
    policy = base()["NetworkPolicy", "owlclaw"]["spec"]
    own = {"matchLabels": {"app.kubernetes.io/part-of": "owlclaw"}}
    open_ports = {
        port["port"] for rule in policy["egress"] for port in rule.get("ports", []) if port.get("protocol") == "UDP"
    }
    [clients] = [
        rule
        for rule in policy["ingress"]
        if rule["from"] == [{"namespaceSelector": {"matchLabels": {"owlclaw/client": "true"}}}]
    ]

    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["podSelector"] == own
    assert all(rule.get("from") for rule in policy["ingress"]), "a rule without `from` lets everybody in"
    assert {"from": [{"podSelector": own}]} in policy["ingress"], "Ray takes ports as it needs them"
    assert clients["ports"] == [{"port": 8000}]
    assert open_ports == {53}
    assert own in [each.get("podSelector") for rule in policy["egress"] for each in rule.get("to", [])]
    assert all(group["template"]["metadata"]["labels"].items() >= own["matchLabels"].items() for group in GROUPS)


def one_may_go(objects, name="owlclaw"):
    """Whether a budget lets one pod of the cluster go. It has to be a number: a RayCluster has no scale to ask for."""
    budget = objects["PodDisruptionBudget", name]["spec"]
    pods = 1 + sum(group["replicas"] for group in groups(objects["RayService", name])[1:])
    return budget.keys() == {"minAvailable", "selector"} and budget["minAvailable"] == pods - 1


def patched(folder):
    """Return the base with the changes of an overlay."""
    objects = copy.deepcopy(base())
    for patch in kustomization(folder)["patches"]:
        for change in yaml.safe_load(patch["patch"]):
            path, _, last = change["path"].rpartition("/")
            kubernetes.pointed(objects[patch["target"]["kind"], patch["target"]["name"]], path)[last] = change["value"]
    return objects


def test_kubernetes_takes_one_machine_at_a_time_and_takes_it():
    labels = base()["PodDisruptionBudget", "owlclaw"]["spec"]["selector"]["matchLabels"].items()

    assert all(group["template"]["metadata"]["labels"].items() >= labels for group in GROUPS)
    assert one_may_go(base())
    assert [folder.name for folder in OVERLAYS if not one_may_go(patched(folder))] == []
    assert "minAvailable: {{ .Values.workers.replicas }}\n" in (CHART / "templates/policies.yaml").read_text()


@pytest.mark.parametrize("file", [KUBERAY / "base/rayservice.yaml", CHART / "templates/rayservice.yaml"], ids=str)
def test_pods_keep_the_label_by_which_kuberays_service_of_the_head_finds_them(file):
    written = re.findall(r"^ +labels: \{app\.kubernetes\.io/(\S+):", file.read_text(), flags=re.MULTILINE)

    assert written == ["part-of", "part-of"], (
        "KubeRay selects app.kubernetes.io/name: kuberay, which pods would override"
    )


def test_an_upgrade_with_helm_leaves_the_old_cluster_what_it_mounts():
    maps = (CHART / "templates/configmaps.yaml").read_text().split("\n---\n")

    assert len(maps) == 2
    assert all(re.search(r"^    helm\.sh/resource-policy: keep$", each, flags=re.MULTILINE) for each in maps)


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_an_overlay_changes_what_there_is(folder):
    """Of what kustomize does, the part that can be wrong, without kustomize."""
    written = kustomization(folder)

    for each in [*written["resources"], *written.get("components", [])]:
        assert (folder / each / "kustomization.yaml").is_file(), each
    for patch in written["patches"]:
        target = base()[patch["target"]["kind"], patch["target"]["name"]]
        for change in yaml.safe_load(patch["patch"]):
            assert change["op"] == "replace"
            assert type(kubernetes.pointed(target, change["path"])) is type(change["value"]), change["path"]
    for image in written.get("images", []):
        assert container(GROUPS[1])["image"].partition(":")[0] == image["name"]


@needs_kubectl
@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_kustomize_renders_an_overlay_whose_parts_name_each_other(folder):
    rendered = rendered_by_kustomize(folder)
    service = rendered["RayService", "owlclaw"]
    asked = [each["op"] for patch in kustomization(folder)["patches"] for each in yaml.safe_load(patch["patch"])]

    maps = {name for kind, name in rendered if kind == "ConfigMap"}
    assert asked
    for group in groups(service):
        named = [each["configMapRef"]["name"] for each in container(group)["envFrom"] if "configMapRef" in each]
        named += [each["configMap"]["name"] for each in pod(group)["volumes"] if "configMap" in each]
        assert set(named) == maps, "a change of a ConfigMap changes its name, and so makes a new cluster"
    assert {each["metadata"]["namespace"] for each in rendered.values()} == {kustomization(folder)["namespace"]}
    images = {container(group)["image"] for group in groups(service)}
    assert images == {
        f"{image['newName']}:{image['newTag']}" for image in kustomization(folder).get("images", [])
    } or images == {"owlclaw:0.1.0"}


@needs_crds
@pytest.mark.parametrize("where", ["base", "helm", *OVERLAYS], ids=str)
def test_kuberays_schema_takes_the_service_and_would_not_take_a_misspelt_field(where):
    if where == "base":
        service = SERVICE
    elif where == "helm":
        if HELM is None:
            pytest.skip("needs helm, on the PATH or named by HELM")
        service = rendered_by_helm()["RayService", "owlclaw"]
    else:
        if shutil.which("kubectl") is None:
            pytest.skip("needs kubectl")
        service = rendered_by_kustomize(where)["RayService", "owlclaw"]
    broken = copy.deepcopy(service)
    container(groups(broken)[0])["readynessProbe"] = {}

    assert kubernetes.custom_resource_errors(service) == []
    [error] = kubernetes.custom_resource_errors(broken)
    assert "readynessProbe" in error


def test_the_versions_are_those_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    ray = SERVICE["spec"]["rayClusterConfig"]["rayVersion"]

    assert chart["version"] == chart["appVersion"] == version("owlclaw-ray")
    assert container(GROUPS[0])["image"] == f"owlclaw:{version('owlclaw-ray')}"
    assert ray == values["rayVersion"]
    assert Version(ray) <= Version(version("ray"))


def test_the_charts_values_fit_its_schema_which_refuses_others():
    from jsonschema import Draft7Validator

    validator = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert list(validator.iter_errors(values)) == []
    for wrong in (
        values | {"replicas": 3},
        values | {"head": {"slots": {"tool_slots": 1}}},
        values | {"secrets": values["secrets"] | {"password": "p"}},
        values | {"clusterDeletionDelaySeconds": 60},
        values | {"files": {"app.py": ""}},
    ):
        assert list(validator.iter_errors(wrong)), wrong


def without_names(found):
    """Return an object without what the chart and kustomize each call their own way."""
    text = json.dumps(found, sort_keys=True)
    text = re.sub(r"(owlclaw-(?:app|node))-\w+", r"\1", text)
    text = re.sub(r'"app.kubernetes.io/instance": "\w+", ', "", text)
    return json.loads(text)


@needs_helm
def test_the_chart_makes_what_the_base_makes():
    rendered = rendered_by_helm("--set", "serviceMonitor.enabled=true")
    expected = base() | {("ServiceMonitor", "owlclaw"): MONITOR}
    assert rendered.keys() - {each for each in rendered if each[0] == "ConfigMap"} == expected.keys()

    for key, written in expected.items():
        made, wanted = without_names(rendered[key]), without_names(written)
        if key[0] == "RayService":
            for each in (made, wanted):
                for group in groups(each):
                    [volume] = [one["configMap"] for one in pod(group)["volumes"] if one["name"] == "app"]
                    del volume["items"]  # another example of an application
                    container(group).pop("imagePullPolicy", None)
                    group["slots"] = slots(group)
                    del group["rayStartParams"]["resources"]  # the same, in another order
        assert made == wanted, key


@needs_helm
def test_the_chart_mounts_its_files_and_names_a_cluster_after_its_release():
    before = rendered_by_helm(release="blue")
    after = rendered_by_helm("--set-string", r"files.owlclaw\.yaml=agents_dir: others", release="blue")
    [name] = [name for kind, name in before if kind == "ConfigMap" and "-app-" in name]
    service = before["RayService", "owlclaw-blue"]

    assert ("RayService", "owlclaw-blue") in after
    assert ("ConfigMap", name) not in after, "a change of a file is a change of the name, and so a new cluster"
    for group in groups(service):
        [volume] = [each["configMap"] for each in pod(group)["volumes"] if each["name"] == "app"]
        assert volume["name"] == name
        assert {each["key"] for each in volume["items"]} == before["ConfigMap", name]["data"].keys()
        assert "agents/assistant/agent.yaml" in {each["path"] for each in volume["items"]}
    data = next(each["data"] for (kind, of), each in before.items() if kind == "ConfigMap" and of != name)
    assert data == kubernetes.environment(CHART / "node.env")


@needs_helm
def test_the_chart_uses_a_redis_of_ones_own_and_refuses_values_that_are_none():
    rendered = rendered_by_helm("--set", "valkey.address=redis:6379", "--set", "networkPolicy.enabled=false")
    refused = helm("--set", "secrets.password=p")

    options = rendered["RayService", "owlclaw"]["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert options["redisAddress"] == "redis:6379"
    assert {kind for kind, _ in rendered} == {"RayService", "ConfigMap", "PodDisruptionBudget"}
    assert refused.returncode != 0
    assert "password" in refused.stderr
