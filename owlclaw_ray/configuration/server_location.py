"""Where a runtime is: the settings that its clients read. The rest, its secrets above all, is the server's own concern."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.configuration.yaml_document import YamlDocument, read_yaml
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem

FILE_NAME = "owlclaw.yaml"
DEFAULT_HOST, DEFAULT_PORT, DEFAULT_DATA_DIR = "127.0.0.1", 8700, ".owlclaw"
_MAX_FILE_BYTES = 1024 * 1024
_HIGHEST_PORT = 65_535


class ServerLocation(Struct, frozen=True):
    """Where a runtime listens, or would, and where its data is."""

    url: str
    data_dir: Path


def find_runtime(folder: Path, environ: Mapping[str, str]) -> ServerLocation:
    """Return what `owlclaw.yaml` in the folder, if it is there, and the variables `OWLCLAW_…` say of it.

    Raises ConfigurationError if the file cannot be read, or if one of these settings is bad. Others are not looked at.
    """
    folder = folder.resolve()
    document = read_settings_file(folder / FILE_NAME)
    found: dict[tuple[str, ...], JsonValue] = {}
    problems = []
    for path, default in (
        (("http", "host"), DEFAULT_HOST),
        (("http", "port"), DEFAULT_PORT),
        (("data_dir",), DEFAULT_DATA_DIR),
    ):
        where, value = _written(path, document, environ)
        value = found[path] = default if value is None else value
        if path[-1] == "port":
            text, wanted = str(value), f"a whole number from 1 to {_HIGHEST_PORT}"
            is_number = text.isascii() and text.isdecimal() and not isinstance(value, bool)
            right = is_number and 1 <= int(text) <= _HIGHEST_PORT
        else:
            right, wanted = isinstance(value, str) and value != "", "a text"
        if not right:
            problems.append(Problem(where, f"is {value!r}", f"it must be {wanted}"))
    if problems:
        raise ConfigurationError(problems)
    _, certificate = _written(("http", "tls_certificate"), document, environ)
    url = url_of(str(found["http", "host"]), int(found["http", "port"]), () if certificate else None)
    return ServerLocation(url, folder / Path(found["data_dir",]).expanduser())


def url_of(host: str, port: int, names: Sequence[str] | None = None) -> str:
    """Return where programs on this machine reach a server that listens at an address, all addresses included.

    `names`: under TLS, what the server is called by, the best first; None for plain HTTP.
    """
    scheme, name = ("http", "") if names is None else ("https", next(iter(names), ""))
    name = name or reached_at(host)
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def reached_at(host: str) -> str:
    """Return an address at which programs on this machine reach what listens at one, or at all of them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings_file(path: Path) -> YamlDocument:
    """Return what the file holds, nothing without one; raises ConfigurationError."""
    try:
        content = path.read_bytes()
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigurationError([Problem(FILE_NAME, f"is {len(content)} bytes long", "it may have 1 MiB")])
        return read_yaml(content.decode("utf-8-sig"), FILE_NAME)
    except FileNotFoundError:
        if not path.parent.is_dir():
            fix = "name the application's folder with --folder"
            raise ConfigurationError([Problem(str(path.parent), "there is no such folder", fix)]) from None
        return YamlDocument(FILE_NAME, {})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            [Problem(str(path), f"cannot be read: {error}", "it must be a UTF-8 text file")]
        ) from error


def _written(path: Sequence[str], document: YamlDocument, environ: Mapping[str, str]) -> tuple[str, JsonValue]:
    """Return where a setting is written, and its value, None if it is not. Empty variables count as absent."""
    variable = f"OWLCLAW_{'__'.join(path).upper()}"
    text = environ.get(variable, "").strip()
    if text:
        return variable, text
    value: JsonValue = document.data
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return document.where(path), value
