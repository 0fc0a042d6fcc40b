"""Where the code tools may go: the one place that decides it.

A path is judged by where it leads: it is made absolute, and every link and `..` in it is followed before it is compared with
the roots. Sensitive names, and the runtime's own files, are looked for in any case; names in the path as it is written, too.
Deciding reads the file system and changes nothing.
"""

from __future__ import annotations

import os
import pwd
import unicodedata
from collections.abc import Mapping, Sequence
from copy import copy
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.errors import ApprovalNeededError
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.failure import ToolFailureError


class Access(Enum):
    """What a tool wants of a path."""

    READ = "read"
    WRITE = "write"


class PathConcern(Enum):
    """Why a person should be asked, or nobody can allow it."""

    OUTSIDE = "outside"
    """The path is below none of the folders that are allowed for this access. A setting can allow it, a person cannot."""
    SENSITIVE = "sensitive"
    """The path is, or is below, something that holds secrets. A person can allow it."""
    OWN_FILES = "own_files"
    """It is the runtime's own. Nobody can allow it."""
    LINKED = "linked"
    """The file has another name, which may be anywhere. A person can allow that it is read; that it is written, nobody can."""


_ALLOWED_BY_PERSONS = {
    Access.READ: frozenset({PathConcern.SENSITIVE, PathConcern.LINKED}),
    Access.WRITE: frozenset({PathConcern.SENSITIVE}),
}


class PathTarget(Struct, frozen=True):
    """A path, followed to where it leads."""

    path: Path
    concerns: frozenset[PathConcern]
    pattern: str = ""
    """The sensitive path that it matches."""


class PathPolicy:
    """Decides for one set of options."""

    def __init__(self, options: CodeOptions, homes: Sequence[Path]) -> None:
        """`homes` are the folders that `~` may mean; paths that a model writes mean the first."""
        self.consent = False
        self._home = homes[0]
        self.project = _real(Path(options.project))
        write = (options.project, *options.write_roots)
        self._roots = {
            Access.READ: tuple(_real(Path(each)) for each in (*write, *options.read_roots)),
            Access.WRITE: tuple(_real(Path(each)) for each in write),
        }
        self._own = {
            Access.READ: tuple(_parts(_real(Path(each))) for each in options.hidden),
            Access.WRITE: tuple(_parts(_real(Path(each))) for each in (*options.hidden, *options.read_only)),
        }
        self._patterns = tuple((each, _folded(each)) for each in options.sensitive_paths if "/" not in each)
        folders = []
        for each in options.sensitive_paths:
            if "/" in each:
                meant = [home / each[2:] for home in homes] if each.startswith("~/") else [self.project / each]
                folders.append((each, tuple(_parts(folder) for path in meant for folder in {path, _real(path)})))
        self._folders = tuple(folders)

    @classmethod
    def of(cls, options: CodeOptions, environment: Mapping[str, str]) -> PathPolicy:
        """Return the policy of this process's user, whose home is what the environment says, and what the system says."""
        of_the_system = Path(pwd.getpwuid(os.getuid()).pw_dir)
        return cls(options, [Path(environment.get("HOME") or of_the_system), of_the_system])

    def with_consent(self) -> PathPolicy:
        """Return the policy for a call that a person allowed."""
        allowing = copy(self)
        allowing.consent = True
        return allowing

    def target(self, written: str, access: Access) -> PathTarget:
        """Return where a path leads and what speaks against it; relative paths start at the project, `~` at home.

        Raises ToolFailureError (`invalid_path`) for what is no path at all.
        """
        if not written or "\0" in written:
            raise ToolFailureError("invalid_path", "the path is empty or holds a NUL character")
        at_home = written == "~" or written.startswith("~/")
        absolute = self._home / written[2:] if at_home else self.project / written
        path = _real(absolute)
        concerns = set()
        if not any(path.is_relative_to(root) for root in self._roots[access]):
            concerns.add(PathConcern.OUTSIDE)
        if _begins_with_any(_parts(path), self._own[access]):
            concerns.add(PathConcern.OWN_FILES)
        if _has_other_names(path):
            concerns.add(PathConcern.LINKED)
        pattern = self.sensitive(absolute) or self.sensitive(path)
        if pattern:
            concerns.add(PathConcern.SENSITIVE)
        return PathTarget(path, frozenset(concerns), pattern)

    def permitted(self, written: str, access: Access) -> Path:
        """Return where a path leads.

        Raises ToolFailureError (`denied`) that says which setting would allow it, if one would, and ApprovalNeededError if only
        a person can.
        """
        target = self.target(written, access)
        if target.concerns - _ALLOWED_BY_PERSONS[access]:
            raise ToolFailureError(
                "denied",
                f"{access.value} access to {written!r} is not allowed: {self._why(target, access)}",
                details={"path": str(target.path), "concerns": sorted(each.value for each in target.concerns)},
            )
        if target.concerns and not self.consent:
            raise ApprovalNeededError(str(target.path), self._why(target, access))
        return target.path

    def sensitive(self, path: Path) -> str:
        """Return the sensitive path that an absolute path matches, or nothing."""
        parts = _parts(path)
        for written, folders in self._folders:
            if _begins_with_any(parts, folders):
                return written
        return next((each for each, pattern in self._patterns if any(fnmatchcase(part, pattern) for part in parts)), "")

    def skipped(self, path: Path) -> bool:
        """Return whether a walk through readable folders passes this entry by: a link of any kind, a secret, or the runtime's own."""
        return path.is_symlink() or _has_other_names(path) or bool(self.sensitive(path)) or self.is_own(path)

    def is_own(self, path: Path) -> bool:
        """Return whether a path is within the runtime's own data."""
        return _begins_with_any(_parts(path), self._own[Access.READ])

    def shown(self, path: Path) -> str:
        """Return how results name a path: from the project on, if it is in there. What is no UTF-8 in it is replaced."""
        inside = path.is_relative_to(self.project)
        text = str(path.relative_to(self.project)) if inside else str(path)
        return text.encode("utf-8", "replace").decode()

    def _why(self, target: PathTarget, access: Access) -> str:
        if PathConcern.OWN_FILES in target.concerns:
            return "it belongs to the runtime. No setting allows it."
        if PathConcern.LINKED in target.concerns and PathConcern.OUTSIDE not in target.concerns:
            linked = "the file has more than one name (hard links), and another name may be anywhere."
            return f"{linked} A person can allow it." if access is Access.READ else f"{linked} Write a copy of it."
        if PathConcern.OUTSIDE in target.concerns:
            setting = "tools.code.read_roots" if access is Access.READ else "tools.code.write_roots"
            return f"it leads to {target.path}, outside of the allowed folders. The setting {setting} can allow its folder."
        return f"it matches {target.pattern!r} of the setting tools.code.sensitive_paths."


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _folded(name: str) -> str:
    """Return a name as a file system that ignores case and composition would compare it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _parts(path: Path) -> tuple[str, ...]:
    return tuple(_folded(part) for part in path.parts)


def _begins_with_any(parts: tuple[str, ...], beginnings: tuple[tuple[str, ...], ...]) -> bool:
    return any(parts[: len(each)] == each for each in beginnings)


def _has_other_names(path: Path) -> bool:
    try:
        stat = path.lstat()
    except OSError:
        return False
    return path.is_file() and stat.st_nlink > 1
