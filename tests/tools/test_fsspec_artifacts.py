"""Artifacts at a URL: what every home promises, over S3 as a real server speaks it, memory and files; and what goes wrong there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import boto3
import fsspec
import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from owlclaw_ray.domain.artifact import BINARY, JSON, TEXT
from owlclaw_ray.errors import ConfigurationError, NotFoundError, StoreUnavailableError
from owlclaw_ray.tools import fsspec_artifacts
from owlclaw_ray.tools.artifact_home import ArtifactsBySize
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.fsspec_artifacts import OBJECT_BYTES, ObjectArtifacts, artifacts_at, check_place, url_problem
from tests.contracts.artifact_home_contract import NEIGHBOUR, NOW, TRADER, ArtifactHomeContract, artifact, ids

_BUCKET = "owls"
_MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="session")
def s3_server():
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_environment(s3_server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "quite-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=_BUCKET)
    yield client
    for each in client.list_objects_v2(Bucket=_BUCKET).get("Contents", ()):
        client.delete_object(Bucket=_BUCKET, Key=each["Key"])
    client.close()


def aging(home, set_age):
    def store(agent, stored, hours):
        home.put(agent, stored)
        set_age(stored.artifact_id, NOW - timedelta(hours=hours))

    return store


def age_in_moto(artifact_id, at):
    for backend in s3_backends.values():
        for key, found in backend["aws"].buckets[_BUCKET].keys.items():
            if artifact_id in key:
                found.last_modified = at.replace(tzinfo=None)


def age_in_memory(artifact_id, at):
    for path, found in fsspec.filesystem("memory").store.items():
        if artifact_id in path:
            found.created = at


class TestArtifactsOnS3(ArtifactHomeContract):
    @pytest.fixture
    def home(self, s3_environment):
        return artifacts_at(f"s3://{_BUCKET}/artifacts/of owls")

    @pytest.fixture
    def put(self, home):
        return aging(home, age_in_moto)


class TestArtifactsInMemory(ArtifactHomeContract):
    @pytest.fixture
    def home(self):
        return artifacts_at(f"memory://{uuid4().hex}/artifacts")

    @pytest.fixture
    def put(self, home):
        return aging(home, age_in_memory)


class TestArtifactsThatAreRenamed(ArtifactHomeContract):
    """A file system on which a file is seen while it is written."""

    @pytest.fixture
    def home(self, tmp_path):
        return ObjectArtifacts(fsspec.filesystem("file"), str(tmp_path), f"file://{tmp_path}", whole=False)

    @pytest.fixture
    def put(self, home, tmp_path):
        return aging(home, lambda id_, at: age_in_files(tmp_path, id_, at))


class TestArtifactsInAFolder(ArtifactHomeContract):
    @pytest.fixture
    def home(self, tmp_path):
        return artifacts_at(f"file://{tmp_path}")

    @pytest.fixture
    def put(self, home, tmp_path):
        return aging(home, lambda id_, at: age_in_files(tmp_path, id_, at))


class TestArtifactsBySize(ArtifactHomeContract):
    @pytest.fixture
    def home(self, tmp_path):
        return ArtifactsBySize(ArtifactFolder(tmp_path), artifacts_at(f"memory://{uuid4().hex}"), 1_000)

    @pytest.fixture
    def put(self, home, tmp_path):
        def set_age(artifact_id, at):
            age_in_files(tmp_path, artifact_id, at)
            age_in_memory(artifact_id, at)

        return aging(home, set_age)


def age_in_files(folder, artifact_id, at):
    for path in folder.rglob(f"{artifact_id}.*"):
        os.utime(path, (at.timestamp(), at.timestamp()))


@pytest.fixture
def sizes(tmp_path):
    large = artifacts_at(f"memory://{uuid4().hex}")
    return ArtifactsBySize(ArtifactFolder(tmp_path), large, 4), large


def test_only_what_is_over_the_limit_is_at_the_url(sizes, tmp_path):
    home, large = sizes
    home.put(TRADER, artifact(1, content=b"1234"))
    home.put(TRADER, artifact(2, content=b"12345"))

    assert ids(large.listing(TRADER, 9)) == [artifact(2).artifact_id]
    assert [each.name for each in tmp_path.rglob("art_*")] == [f"{artifact(1).artifact_id}.txt"]
    assert set(ids(home.listing(TRADER, 9))) == {artifact(1).artifact_id, artifact(2).artifact_id}
    assert home.most_bytes == OBJECT_BYTES


def test_at_a_url_the_media_type_of_the_last_holds(s3_environment):
    home = artifacts_at(f"s3://{_BUCKET}")
    for media_type in (JSON, TEXT, BINARY):
        home.put(TRADER, artifact(1, media_type))

    assert home.open(TRADER, artifact(1).artifact_id).media_type == BINARY
    assert [each.media_type for each in home.listing(TRADER, 9)] == [BINARY]


def test_what_is_no_artifact_is_neither_listed_nor_removed(s3_environment):
    home = artifacts_at(f"s3://{_BUCKET}/x")
    home.put(NEIGHBOUR, artifact(1))
    others = ["x/agents/notes.txt", "x/agents/default/a/artifacts/art_1/art_1.txt", "elsewhere.txt"]
    for key in others:
        s3_environment.put_object(Bucket=_BUCKET, Key=key, Body=b"mine")

    later = NOW + timedelta(days=36_500)
    assert [home.expire(each.tenant, later) for each in (TRADER, NEIGHBOUR)] == [0, 1]
    assert [each["Key"] for each in s3_environment.list_objects_v2(Bucket=_BUCKET)["Contents"]] == sorted(others)


def test_a_part_of_an_object_is_one_request_for_its_range(s3_environment, monkeypatch):
    home = artifacts_at(f"s3://{_BUCKET}")
    home.put(TRADER, artifact(1, content=bytes(range(256)) * 40_000))
    found, asked = home.open(TRADER, artifact(1).artifact_id), []
    real = type(home._system)._call_s3

    async def call(system, method, *args, **kwargs):
        asked.append((method, kwargs.get("Range") or next((each["Range"] for each in args if "Range" in each), None)))
        return await real(system, method, *args, **kwargs)

    monkeypatch.setattr(type(home._system), "_call_s3", call)

    assert found.read(1_000_000, 1_000_004) == bytes(range(64, 68))
    assert asked == [("get_object", "bytes=1000000-1000003")]


_PUTS = """
import sys
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import TEXT, Artifact
from owlclaw_ray.tools.fsspec_artifacts import ObjectArtifacts, artifacts_at
import fsspec
url, kind = sys.argv[1:]
home = artifacts_at(url)
if kind == "renamed":
    home = ObjectArtifacts(fsspec.filesystem("file"), url.removeprefix("file://"), url, whole=False)
print("begins", flush=True)
home.put(AgentRef.parse("trader:AAPL"), Artifact("art_" + "0" * 26, TEXT, b"x" * (200 * 1024 * 1024)))
"""


def killed_while(url, kind, is_under_way):
    """Kill a process with SIGKILL that stores an artifact, once something of it is there; return whether it was under way then."""
    with subprocess.Popen([sys.executable, "-c", _PUTS, url, kind], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        while not is_under_way() and process.poll() is None:
            pass
        process.kill()
        process.wait()
        return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["folder", "renamed"])
def test_of_a_process_that_is_killed_while_it_stores_a_file_nothing_is_seen(tmp_path, kind):
    assert killed_while(
        f"file://{tmp_path}", kind, lambda: any(each.is_file() and each.stat().st_size for each in tmp_path.rglob("*"))
    )

    home = artifacts_at(f"file://{tmp_path}")
    if kind == "renamed":
        home = ObjectArtifacts(fsspec.filesystem("file"), str(tmp_path), "", whole=False)
    assert list(home.listing(TRADER, 9)) == []
    with pytest.raises(NotFoundError):
        home.open(TRADER, artifact(0).artifact_id)
    assert home.expire(TRADER.tenant, NOW + timedelta(days=36_500)) == 0
    if kind == "renamed":
        assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_of_a_process_that_is_killed_while_it_stores_an_object_nothing_is_seen(s3_environment):
    def parts():
        uploads = s3_environment.list_multipart_uploads(Bucket=_BUCKET).get("Uploads", ())
        return [
            part
            for each in uploads
            for part in s3_environment.list_parts(Bucket=_BUCKET, Key=each["Key"], UploadId=each["UploadId"]).get(
                "Parts", ()
            )
        ]

    assert killed_while(f"s3://{_BUCKET}", "object", parts)

    home = artifacts_at(f"s3://{_BUCKET}")
    assert list(home.listing(TRADER, 9)) == []
    with pytest.raises(NotFoundError):
        home.open(TRADER, artifact(0).artifact_id)


@pytest.fixture
def closed_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_place_that_is_away_is_named_and_nothing_else_is_told(s3_environment, monkeypatch, closed_port):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port}")
    home = artifacts_at(f"s3://{_BUCKET}/a")

    for use in (
        lambda: home.put(TRADER, artifact(1)),
        lambda: home.open(TRADER, artifact(1).artifact_id),
        lambda: home.listing(TRADER, 9),
        lambda: home.expire(TRADER.tenant, NOW),
    ):
        with pytest.raises(StoreUnavailableError, match=rf"^s3://{_BUCKET}/a cannot be used: ") as told:
            use()
        assert "quite-secret" not in str(told.value)


def test_a_place_that_does_not_answer_is_given_up(monkeypatch):
    answers = threading.Event()

    class Hanging:
        protocol = ("s3",)

        def find(self, folder, *, detail):
            answers.wait()

    monkeypatch.setattr(fsspec_artifacts, "OBJECT_SECONDS", 0.01)
    with pytest.raises(StoreUnavailableError, match=r"s3://b did not answer within 0\.01 s"):
        ObjectArtifacts(Hanging(), "b", "s3://b", whole=True).listing(TRADER, 9)
    answers.set()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("s3:bucket", "is no URL of a folder"),
        ("/srv/artifacts", "is no URL of a folder"),
        ("s3://", "is no URL of a folder"),
        ("s3://bucket/a?versionId=1", "is no URL of a folder"),
        ("simplecache::s3://bucket", "is no URL of a folder"),
        ("s4://bucket", "s4://, which fsspec does not know"),
        ("memory://a", "every process has its own"),
        ("file://artifacts", "write file:///artifacts"),
        ("sftp://me:pass@host/a", "leave them to the environment"),
        ("s3://key:secret@bucket", "leave them to the environment"),
    ],
)
def test_a_wrong_url_is_refused_with_what_would_be_right(url, what):
    assert what in url_problem(url)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/b", "file:///srv/a", "abfs://box@account/a", "gs://b/a"])
def test_a_right_one_is_not(url):
    assert url_problem(url) == ""


def test_a_place_that_takes_files_is_left_as_it_was(s3_environment, tmp_path):
    assert check_place(f"s3://{_BUCKET}/a") == ""
    assert check_place(f"file://{tmp_path}") == ""

    assert "Contents" not in s3_environment.list_objects_v2(Bucket=_BUCKET)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_not_there_or_refuses_is_told_and_what_would_be_right(s3_environment, tmp_path, monkeypatch):
    assert check_place("s3://no-such-bucket/a") == "does not exist: make the bucket, or name one that there is"
    assert check_place(f"file://{tmp_path}/no/folder") == "does not exist: make the folder, or name one that there is"

    async def refuse(*_, **__):
        raise PermissionError("Access Denied")

    monkeypatch.setattr("s3fs.S3FileSystem._call_s3", refuse)
    assert check_place(f"s3://{_BUCKET}/a").startswith("refuses to have files written and removed: ")


def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(fsspec_artifacts, "find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=r"s3fs is not installed.*pip install -e '\.\[s3\]'"):
        artifacts_at("s3://bucket")
