"""Checks of a running cluster: what its nodes say of themselves, and how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from actors.node_variables import NEEDED_VARIABLES, SHARED_VARIABLES
from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from serve.cli.findings import CheckFinding, fail, ok, warn

_MAX_SKEW = 1.0
_SLOW_STORE = 0.05
_FULL_MEMORY = 0.95
"""Ray ends workers beyond it."""
_FULL_DISK = 0.95
"""Ray puts nothing more on a disk beyond it."""
_LITTLE = 256 * 1024**2
_GIB = 1024**3
_STATES: Mapping[str, Callable[[str, str], CheckFinding]] = {
    "joining": lambda subject, why: warn(
        subject, f"joins: {why}", "wait half a minute; after that, look into the logs of Ray on that machine"
    ),
    "draining": lambda subject, why: warn(
        subject, f"leaves: {why}", "nothing, if that is meant; it takes no new work and ends when what it has is over"
    ),
    "no_root": lambda subject, why: fail(
        subject,
        f"is idle: {why}",
        "with SQLite set store_url to PostgreSQL, or stop Ray there; else the log of a root on another node says why it makes none there",
    ),
    "silent": lambda subject, why: fail(
        subject,
        why,
        "see whether that machine is overloaded, hangs or is cut off; its agents run elsewhere once Ray gives it up",
    ),
    "lost": lambda subject, why: warn(
        subject,
        f"was lost: {why or 'Ray does not say why'}",
        "its agents run elsewhere; start Ray there again if the machine is to come back: it comes under a new id",
    ),
}

_AS_ALL_NODES = "start Ray with the same environment on all machines: owlclaw node sets it"
_WHYS = {each.name: each.why for each in SHARED_VARIABLES}


def check_cluster(cluster: wire.Nodes) -> Iterator[CheckFinding]:
    """Yield what is found: of the cluster, then of each node, with one good finding for a node that has nothing to say."""
    nodes = cluster["nodes"]
    if not nodes:
        yield fail("cluster", "the runtime has no Ray cluster", "start one with: owlclaw up")
        return
    yield from _whole(cluster)
    usual = _UsualValues(nodes)
    for node in nodes:
        found = [*_check_node(node, usual)]
        yield from found or [_good(node)]


def _whole(cluster: wire.Nodes) -> Iterator[CheckFinding]:
    lease = cluster["lease"]
    if lease is not None:
        yield _lease(lease)
        yield from map(_other, lease["others"])
    for part in cluster["missing"]:
        yield fail("cluster", f"has no {part}", "a root makes one within seconds; if not, its log says why")
    yield from _missing_variables([node["report"] for node in cluster["nodes"] if node["report"] is not None])


def _missing_variables(reports: Sequence[wire.NodeReport]) -> Iterator[CheckFinding]:
    """Yield what no node has though each needs it: no node differs from the others. One that is alone needs no more than the token."""
    told = {each["name"] for report in reports for each in report["variables"]}
    if "RAY_AUTH_MODE" in told and not any(_value(report, "RAY_AUTH_MODE") == "token" for report in reports):
        message = "no node asks for Ray's token (RAY_AUTH_MODE): whoever reaches its ports runs programs on all of them"
        yield fail("cluster", message, f"{_AS_ALL_NODES}, and docs/cluster.md says where the token is")
        told.remove("RAY_AUTH_MODE")
    missing = [each for each in sorted(told & NEEDED_VARIABLES) if not any(_value(report, each) for report in reports)]
    if missing and len(reports) > 1:
        message = "; ".join(f"{name} is not set on any node: {_WHYS[name]}" for name in missing)
        yield warn("cluster", message, _AS_ALL_NODES)


def _lease(lease: wire.Lease) -> CheckFinding:
    if lease["held"]:
        return ok("lease", f"this cluster ({lease['cluster']}) runs the agents, generation {lease['generation']}")
    if lease["holder"]:
        return ok(
            "lease",
            f"this cluster ({lease['cluster']}) stands by: {lease['holder']} runs the agents, generation {lease['generation']}",
        )
    fix = "look after the store: no cluster runs the agents until one has the lease, which takes six seconds at most"
    return warn("lease", f"this cluster ({lease['cluster']}) does not hold it, and does not know who does", fix)


def _other(other: wire.OtherCluster) -> CheckFinding:
    """Return who else has the store; migrations of newer versions wait for those whose schema they exclude."""
    version = f"owlclaw-ray {other['version']}, schema {other['schema']}, since {other['since']}"
    said = [version if other["schema"] else "a version that does not name its schema", *other["machines"]]
    return ok("lease", f"{other['cluster']} has nodes in the store, too: {', '.join(said)}")


class _UsualValues:
    """What most nodes have, which the others are compared with; the head's value if there are as many of another."""

    def __init__(self, nodes: Sequence[wire.Node]) -> None:
        self._reports = [
            node["report"] for node in sorted(nodes, key=lambda node: not node["head"]) if node["report"] is not None
        ]
        of_directory = (node["report"] for node in nodes if "directory" in node["parts"])
        self._mark = next((each["folder_mark"] for each in of_directory if each is not None), "")

    def of(self, value: Callable[[wire.NodeReport], str | None]) -> str | None:
        """Return the most frequent value."""
        counts = Counter(map(value, self._reports))
        return counts.most_common(1)[0][0]

    def variable(self, name: str) -> str | None:
        """Return the most frequent value of a variable among the nodes that tell it; of those that have it, if each node needs it."""
        told = [each["value"] for report in self._reports for each in report["variables"] if each["name"] == name]
        if name in NEEDED_VARIABLES:
            told = [each for each in told if each is not None] or told
        return Counter(told).most_common(1)[0][0]

    @property
    def folder_mark(self) -> str | None:
        """The mark in the data folder of the Directory's node, which wrote it; the most frequent one if that does not answer."""
        return self._mark or self.of(lambda each: each["folder_mark"])


def _check_node(node: wire.Node, usual: _UsualValues) -> Iterator[CheckFinding]:
    subject = f"node {node['name']}"
    if node["state"] != "active":
        yield _STATES[node["state"]](subject, node["problem"])
    if node["state"] in {"lost", "no_root"}:
        return
    yield from _slots(subject, node)
    if node["report"] is None or node["clock"] is None:
        return
    yield from _parts(subject, node)
    yield from _clock(subject, node["clock"])
    report = node["report"]
    yield from _versions(subject, report, usual)
    yield from _variables(subject, report, usual)
    yield from _application(subject, report, usual)
    if report["shared_files"] and (not report["folder_mark"] or report["folder_mark"] != usual.folder_mark):
        yield fail(
            subject,
            f"what the Directory wrote is not in its {report['data_dir']['path']}: agents there lack their memories and artifacts",
            "mount the same file system there, or set memory.home to database",
        )
    yield from _store(subject, report["load"])
    yield from _disks(subject, report)
    if report["load"]["memory_used"] > _FULL_MEMORY:
        message = f"{report['load']['memory_used']:.0%} of its memory is used, and Ray ends workers beyond 95 %"
        yield warn(subject, message, "lower actors.max or tool slots there, or give it more memory")


def _slots(subject: str, node: wire.Node) -> Iterator[CheckFinding]:
    missing = [each["name"] for each in node["slots"] if not each["total"]]
    if missing:
        offered = ", ".join(f'"{name}": 2' for name in missing)
        yield fail(
            subject,
            f"does not offer {', '.join(missing)}: tool calls of agents there wait for ever",
            f"start it with: owlclaw node …, or ray start --resources='{{{offered}}}' …",
        )


def _parts(subject: str, node: wire.Node) -> Iterator[CheckFinding]:
    for part in node["missing"]:
        yield fail(
            subject,
            f"has no {part}",
            "its root makes one when it starts; end the root's process, and Ray starts it again",
        )


def _clock(subject: str, clock: wire.NodeClock) -> Iterator[CheckFinding]:
    if abs(clock["skew"]) - clock["uncertainty"] > _MAX_SKEW:
        direction = "ahead of" if clock["skew"] > 0 else "behind"
        yield warn(
            subject,
            f"its clock is {abs(clock['skew']):.1f} s (±{clock['uncertainty']:.3f} s) {direction} the server's: schedules, "
            "approvals and time limits of runs come that much too early or too late, and times in the ledger are wrong",
            "have all machines ask a time server: timedatectl set-ntp true",
        )


def _versions(subject: str, report: wire.NodeReport, usual: _UsualValues) -> Iterator[CheckFinding]:
    tests: tuple[tuple[str, str, Callable[[wire.NodeReport], str]], ...] = (
        ("Python", report["versions"]["python"], lambda each: each["versions"]["python"]),
        ("Ray", report["versions"]["ray"], lambda each: each["versions"]["ray"]),
        ("OwlClaw", report["versions"]["owlclaw"], lambda each: each["versions"]["owlclaw"]),
    )
    for what, own, value in tests:
        if own != usual.of(value):
            yield fail(
                subject,
                f"has {what} {own}, the others have {usual.of(value)}",
                "install the same version on every machine, and start Ray there again",
            )
    if report["versions"]["platform"] != usual.of(lambda each: each["versions"]["platform"]):
        message = (
            f"is {report['versions']['platform']}, the others are {usual.of(lambda each: each['versions']['platform'])}"
        )
        yield warn(subject, message, "see that the application and its packages work on both")


def _variables(subject: str, report: wire.NodeReport, usual: _UsualValues) -> Iterator[CheckFinding]:
    for variable in report["variables"]:
        name, own = variable["name"], variable["value"]
        others = usual.variable(name)
        if own != others:
            why = _WHYS.get(name, "it must be the same on all nodes")
            yield warn(subject, f"{name} is {own or 'not set'}, on others {others or 'not set'}: {why}", _AS_ALL_NODES)


def _value(report: wire.NodeReport, name: str) -> str | None:
    return next((each["value"] for each in report["variables"] if each["name"] == name), None)


def _application(subject: str, report: wire.NodeReport, usual: _UsualValues) -> Iterator[CheckFinding]:
    if not report["application"]:
        fix = "have the application's folder there, at the same path as on the head"
        yield fail(subject, "finds neither definitions nor Python files of the application, or they do not answer", fix)
    elif report["application"] != usual.of(lambda each: each["application"]):
        message = "has other definitions or other Python files of the application than the others: runs depend on where they are"
        yield warn(subject, message, "copy the same files to all machines, then: owlclaw down, owlclaw up")


def _store(subject: str, load: wire.NodeLoad) -> Iterator[CheckFinding]:
    if load["store_seconds"] is None:
        fix = "see whether that machine reaches the database of store_url; its agents do not get on without it"
        yield fail(subject, f"does not reach the store: {load['store_problem']}", fix)
    elif load["store_seconds"] > _SLOW_STORE:
        message = f"a small read of the store takes {1_000 * load['store_seconds']:.0f} ms there"
        yield warn(
            subject, message, "have the database near, or less to do on that machine: each turn of a run waits for it"
        )


def _disks(subject: str, report: wire.NodeReport) -> Iterator[CheckFinding]:
    for what, disk in (("the data folder", report["data_dir"]), ("Ray's folder", report["ray_dir"])):
        if not disk["total"]:
            fix = "make it, or mount its file system"
            yield fail(subject, f"{what} {disk['path']} is not there, or does not answer", fix)
        elif disk["free"] < max(_LITTLE, (1 - _FULL_DISK) * disk["total"]):
            message = (
                f"{disk['free'] / _GIB:.1f} of {disk['total'] / _GIB:.1f} GiB are free under {what} {disk['path']}"
            )
            fix = "make room; without it logs, memories and objects of Ray cannot be written"
            yield (fail if disk["free"] < _LITTLE else warn)(subject, message, fix)


def _good(node: wire.Node) -> CheckFinding:
    said = [f"{node['cpus']:g} CPUs", ", ".join(node["parts"])]
    if node["report"] is not None:
        load = node["report"]["load"]
        said += [f"{counted(load['agents'], 'agent')} on {counted(load['hosts'], 'host')}"]
        said += [f"store {1_000 * (load['store_seconds'] or 0):.1f} ms"]
    return ok(f"node {node['name']}", "; ".join(said))
