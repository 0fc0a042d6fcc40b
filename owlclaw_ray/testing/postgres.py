"""A private PostgreSQL server for tests, from the binaries that Debian's package `postgresql` installs."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LOOPBACK = "127.0.0.1"
_SERVER_USER = "postgres"
_SUPERUSER, ORDINARY_USER = "owlclaw", "runtime"
_DEBIAN = Path("/usr/lib/postgresql")
_SETTINGS = {
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "deadlock_timeout": "200ms",
    "autovacuum": "off",
}


def find_binaries() -> Path | None:
    """Return the folder of initdb and postgres, of the newest version installed; None without any."""
    on_path = shutil.which("initdb")
    if on_path is not None and shutil.which("postgres") is not None:
        return Path(on_path).parent
    installed = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return installed[-1].parent if installed else None


class PostgresServer:
    """A server on a free port of an address of this machine, its data in `folder`, with a password; durable against nothing by default.

    The folder must be new. Run by root, the server runs as the user `postgres` (it refuses root), and the folders above
    its own let that user pass as long as it runs. As a context manager it starts and stops.
    """

    def __init__(
        self, folder: Path, binaries: Path, address: str = LOOPBACK, settings: Mapping[str, str] | None = None
    ) -> None:
        """Whoever is on the network of that address may log in, with the password. `settings` go over those that make it fast."""
        self._settings = {**_SETTINGS, **(settings or {})}
        self._folder, self._binaries, self._address = folder, binaries, address
        self._password = secrets.token_hex(16)
        self._opened: list[tuple[Path, int]] = []
        self._user = _SERVER_USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def url(self, database: str = "postgres", user: str = _SUPERUSER) -> str:
        """Return the URL of one of the server's databases, for its superuser `owlclaw` or for its ordinary user `runtime`."""
        return f"postgresql://{user}:{self._password}@{self._address}:{self.port}/{database}"

    def start(self) -> None:
        """Make the data folder and start the server; raises RuntimeError with its log if it does not come up."""
        self._folder.mkdir(parents=True)
        if self._user is not None:
            self._let_in(self._user)
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)
        self._initialise(secret)
        secret.unlink()
        if self._address != LOOPBACK:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")
        self.port = _free_port(self._address)
        settings = {"listen_addresses": self._address, **self._settings}
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), *arguments]
        with self._log.open("wb") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(command, stdout=log, stderr=log, **self._identity())  # noqa: S603 - a server's binary, named by the caller
        self._process = process
        asyncio.run(self._wait_until_ready(process))

    def stop(self) -> None:
        """Stop the server at once, whoever is connected; a server that does not run is fine."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)
            self._process = None
        while self._opened:
            path, mode = self._opened.pop()
            path.chmod(mode)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _initialise(self, secret: Path) -> None:
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", _SUPERUSER, "-E", "UTF8", "--locale=C"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--no-instructions"]
        with self._log.open("wb") as log:
            made = subprocess.run(command, stdout=log, stderr=log, check=False, **self._identity())  # noqa: S603 - as above
        if made.returncode:
            raise RuntimeError(f"initdb failed: {self._log.read_text(errors='replace')}")

    def _identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = {"cwd": "/", "env": {}}
        if self._user is not None:
            identity |= {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": ()}
        return identity

    def _let_in(self, user: str) -> None:
        os.chown(self._folder, pwd.getpwnam(user).pw_uid, -1)
        for above in self._folder.parents:
            mode = above.stat().st_mode & 0o7777
            if not mode & 0o001:
                above.chmod(mode | 0o001)
                self._opened.append((above, mode))

    async def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        import asyncpg

        async with asyncio.timeout(30):
            while True:
                if process.poll() is not None:
                    raise RuntimeError(f"the server did not start: {self._log.read_text(errors='replace')}")
                try:
                    connection = await asyncpg.connect(self.url())
                except (OSError, asyncpg.PostgresError):
                    await asyncio.sleep(0.05)
                    continue
                await connection.execute(f"CREATE ROLE {ORDINARY_USER} LOGIN PASSWORD '{self._password}'")
                await connection.close()
                return


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
