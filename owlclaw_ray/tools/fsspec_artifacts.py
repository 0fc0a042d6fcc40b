"""Artifacts at a URL of fsspec: objects in S3 and its like, or files on any file system that fsspec has.

Every artifact has a folder of its own, `<url>/agents/<tenant>/<agent>/artifacts/<id>/<id>.txt` (or `.json` and so on), so that one request
finds it whatever its media type is. What the environment says (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on) decides how the place is
reached: a URL has no credentials, for it is in the plan of every process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any, TypeVar

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef, tenant_folder
from owlclaw_ray.domain.artifact import ENDINGS, Artifact, StoredArtifact
from owlclaw_ray.errors import ConfigurationError, NotFoundError, Problem, StoreUnavailableError, install_hint
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.tools.artifact_home import ARTIFACT_ID, ArtifactHome, ArtifactReader, newest_first
from owlclaw_ray.tools.artifacts import ArtifactFolder

OBJECT_BYTES = 256 * 1024 * 1024
"""How much of one result is kept at a URL: all of it is in the memory of the process that stores it."""
OBJECT_SECONDS = 30.0
"""For how long one request to the place is waited for, be it that it stores an artifact."""
_PART_BYTES = 8 * 1024 * 1024
"""How much of an object is sent in one request, where it can be sent in several and appears with the last."""
_LOCAL = frozenset({"file", "local"})
_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "memory"})
"""Protocols of places where an object appears when all of it is there; elsewhere it is written under another name, and renamed."""
_AMAZON = frozenset({"s3", "s3a"})
_RETRIES = 2
_UNFINISHED = ".part"
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]+)")
_STORED_AT = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
"""Under which names file systems tell when a file was written."""
_T = TypeVar("_T")


def url_problem(url: str) -> str:
    """Return what is wrong with the URL as one of artifacts, and what would be right; nothing is asked over the network."""
    from fsspec import available_protocols

    right = "name a folder such as s3://bucket/folder or file:///srv/artifacts"
    found = _URL.fullmatch(url)
    if found is None or "::" in url:
        return f"is no URL of a folder: {right}"
    protocol, place = found.groups()
    if "@" in place.partition("/")[0] and protocol not in {"abfs", "abfss"}:  # in these it stands before the account
        return (
            f"has a user or a password in it, which every process would see: leave them to the environment, and {right}"
        )
    if protocol == "memory":
        return f"is memory, of which every process has its own: {right}"
    if protocol not in available_protocols():
        return f"begins with {protocol}://, which fsspec does not know: {right}"
    if protocol in _LOCAL and not place.startswith("/"):
        return f"is a relative path, and processes run in several folders: write file:///{place}"
    return ""


def artifacts_at(url: str) -> ArtifactHome:
    """Return the home of artifacts at the URL; raises ConfigurationError, with the command that installs it, if a library is missing."""
    protocol, _, place = url.partition("://")
    if protocol in _LOCAL:
        return ArtifactFolder(Path(place), OBJECT_BYTES)
    if protocol in _AMAZON and find_spec("s3fs") is None:
        what = f"is {url}, and s3fs is not installed"
        raise ConfigurationError([Problem("artifacts.url", what, f"{install_hint('s3')}, or name another place")])
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if protocol in _AMAZON:
        seconds = {"connect_timeout": OBJECT_SECONDS / 6, "read_timeout": OBJECT_SECONDS / 2}
        options["config_kwargs"] = {**seconds, "retries": {"mode": "standard", "max_attempts": _RETRIES}}
    try:
        system, root = url_to_fs(url, **options)
    except ImportError as error:
        fix = f"install what fsspec needs for {protocol}:// on all machines ({error}), or name another place"
        raise ConfigurationError([Problem("artifacts.url", f"is {url}, which cannot be reached", fix)]) from error
    return ObjectArtifacts(system, root.rstrip("/"), url, whole=protocol in _WHOLE)


def check_place(url: str) -> str:
    """Return what keeps artifacts from being stored at the URL, with what would be right; empty if a file can be written there and removed.

    Raises ConfigurationError as `artifacts_at`, and StoreUnavailableError if the place does not answer.
    """
    home = artifacts_at(url)
    if isinstance(home, ArtifactFolder):
        return _folder_problem(url.partition("://")[2])
    agent, probe = AgentRef.parse("probe"), Artifact(ArtifactId(f"art_{token_hex(13)}"), next(iter(ENDINGS)), b"probe")
    try:
        home.put(agent, probe)
        home.remove(agent, probe.artifact_id)
    except StoreUnavailableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return "does not exist: make the bucket, or name one that there is"
        if isinstance(error.__cause__, PermissionError):
            return "refuses to have files written and removed: let the credentials of the environment do that, or name another place"
        raise
    return ""


def _folder_problem(folder: str) -> str:
    try:
        with TemporaryFile(dir=folder):
            return ""
    except FileNotFoundError:
        return "does not exist: make the folder, or name one that there is"
    except OSError as error:
        return (
            f"cannot be written ({error.strerror}): let the user that runs OwlClaw write there, or name another folder"
        )


class ObjectArtifacts(ArtifactHome):
    """Keeps artifacts in a folder of a file system of fsspec. Every method raises StoreUnavailableError if that does not do it in time."""

    def __init__(self, system: Any, root: str, shown: str, *, whole: bool) -> None:
        """`system`: an AbstractFileSystem, whose objects appear `whole` or not; `shown`: the place for people."""
        self._system, self._agents, self._shown, self._whole = system, f"{root}/agents", shown, whole
        self.most_bytes = OBJECT_BYTES

    @override
    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        folder = self._folder(agent, artifact.artifact_id)
        path = f"{folder}/{artifact.artifact_id}{ENDINGS[artifact.media_type]}"
        self._ask(lambda: self._write(folder, path, artifact.content))

    def _write(self, folder: str, path: str, content: bytes) -> None:
        if self._whole:
            parts = {"chunksize": _PART_BYTES} if "s3" in self._system.protocol else {}
            self._system.pipe_file(path, content, **parts)
        else:
            self._system.makedirs(folder, exist_ok=True)
            unfinished = f"{folder}/.{token_hex(8)}{_UNFINISHED}"
            try:
                self._system.pipe_file(unfinished, content)
                self._system.mv(unfinished, path)
            except BaseException:
                with suppress(OSError):
                    self._system.rm_file(unfinished)
                raise
        for other in self._found(folder):
            if other != path and _media_type(other):
                self._system.rm_file(other)

    @override
    def open(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        if ARTIFACT_ID.fullmatch(artifact_id):
            found = self._ask(lambda: self._found(self._folder(agent, artifact_id)))
            artifacts = [(_stored_at(about), path) for path, about in found.items() if _media_type(path)]
            if artifacts:
                _, path = max(artifacts)
                return _ObjectReader(
                    artifact_id, _media_type(path), found[path]["size"], self._part_of(path, artifact_id)
                )
        raise NotFoundError("artifact", artifact_id)

    def _part_of(self, path: str, artifact_id: ArtifactId) -> Callable[[int, int], bytes]:
        def part(start: int, end: int) -> bytes:
            try:
                content: bytes = self._ask(lambda: self._system.cat_file(path, start=start, end=end))
            except StoreUnavailableError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise NotFoundError("artifact", artifact_id) from error
                raise
            return content

        return part

    @override
    def remove(self, agent: AgentRef, artifact_id: ArtifactId) -> None:
        def remove() -> None:
            for path in self._found(self._folder(agent, artifact_id)):
                self._system.rm_file(path)

        self._ask(remove)

    @override
    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        return newest_first((each for _, each in self._artifacts(f"{self._agents}/{agent.folder}/artifacts")), limit)

    @override
    def expire(self, tenant: TenantId, before: datetime) -> int:
        removed = 0
        for path, about in self._files_of(tenant).items():
            is_artifact = bool(_media_type(path))
            if (is_artifact or path.endswith(_UNFINISHED)) and _stored_at(about) < before:
                self._ask(partial(self._system.rm_file, path))
                removed += is_artifact
        return removed

    @override
    def remove_tenant(self, tenant: TenantId) -> int:
        found = self._files_of(tenant)
        for path in found:
            self._ask(partial(self._system.rm_file, path))
        return len(found)

    @override
    def files_of(self, tenant: TenantId) -> int:
        return len(self._files_of(tenant))

    def _files_of(self, tenant: TenantId) -> Mapping[str, Mapping[str, Any]]:
        return self._ask(lambda: self._found(f"{self._agents}/{tenant_folder(tenant)}"))

    def _artifacts(self, folder: str) -> Iterator[tuple[str, StoredArtifact]]:
        """Yield the artifacts below a folder, with their paths."""
        for path, about in self._ask(lambda: self._found(folder)).items():
            if media_type := _media_type(path):
                id_ = ArtifactId(path.rpartition("/")[2].partition(".")[0])
                yield path, StoredArtifact(id_, media_type, about["size"], _stored_at(about))

    def _found(self, folder: str) -> Mapping[str, Mapping[str, Any]]:
        try:
            found: dict[str, Mapping[str, Any]] = self._system.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        return found

    def _folder(self, agent: AgentRef, artifact_id: ArtifactId) -> str:
        return f"{self._agents}/{agent.folder}/artifacts/{artifact_id}"

    def _ask(self, request: Callable[[], _T]) -> _T:
        """Return what the file system answers; libraries for its protocols have errors of their own, and some wait for ever."""
        answers: SimpleQueue[tuple[_T | None, Exception | None]] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put((request(), None))
            except Exception as error:  # noqa: BLE001 - it is raised below
                answers.put((None, error))

        threading.Thread(target=ask, name="artifacts", daemon=True).start()
        try:
            answer, error = answers.get(timeout=OBJECT_SECONDS)
        except Empty as late:
            raise StoreUnavailableError(f"{self._shown} did not answer within {OBJECT_SECONDS:g} s") from late
        if error is not None:
            raise StoreUnavailableError(f"{self._shown} cannot be used: {type(error).__name__}: {error}") from error
        return answer  # type: ignore[return-value]


class _ObjectReader(ArtifactReader):
    """Reads an object by requests for parts of it."""

    def __init__(
        self, artifact_id: ArtifactId, media_type: str, size_bytes: int, part: Callable[[int, int], bytes]
    ) -> None:
        self.artifact_id, self.media_type, self.size_bytes, self._part = artifact_id, media_type, size_bytes, part

    @override
    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size_bytes)
        return self._part(start, end) if start < end else b""


_MEDIA_TYPES = {ending: media_type for media_type, ending in ENDINGS.items()}


def _media_type(path: str) -> str:
    """Return the media type of the artifact that has this path; empty for what is none."""
    stem, dot, ending = path.rpartition("/")[2].partition(".")
    return _MEDIA_TYPES.get(f"{dot}{ending}", "") if ARTIFACT_ID.fullmatch(stem) else ""


def _stored_at(about: Mapping[str, Any]) -> datetime:
    """Return when a file was written; one of which nobody knows is new, and never expires."""
    for name in _STORED_AT:
        match about.get(name):
            case datetime() as at:
                return at if at.tzinfo else at.replace(tzinfo=UTC)
            case int() | float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
            case str() as text:
                return datetime.fromisoformat(text)
    return datetime.max.replace(tzinfo=UTC)
