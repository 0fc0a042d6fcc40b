"""People with editors, and power failures, at every system call of an operation on memory files."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from owlclaw_ray.kernel import durable_files

_CALLS = ("open", "close", "read", "write", "pread", "fsync", "ftruncate", "stat", "fstat", "rename", "link", "unlink")


class Calls:
    """The system calls that were made; `before` and `after` are told the number and the name of each."""

    def __init__(self, before=lambda number, name: None, after=lambda number, name, arguments, result: None):
        self.made = []
        self._before, self._after, self._is_busy = before, after, False

    @contextmanager
    def watched(self, monkeypatch, *, swaps=True):
        with monkeypatch.context() as patched:
            for name in _CALLS:
                patched.setattr(os, name, self._watching(name, getattr(os, name)))
            swap = durable_files.swap if swaps else lambda one, other: False
            patched.setattr(durable_files, "swap", self._watching("swap", swap))
            yield self

    def _watching(self, name, real):
        def call(*arguments, **options):
            if self._is_busy:
                return real(*arguments, **options)
            number = len(self.made)
            self.made.append((name, arguments))
            self._told(self._before, number, name)
            try:
                result = real(*arguments, **options)
            except OSError as error:
                self._told(self._after, number, name, arguments, error)
                raise
            self._told(self._after, number, name, arguments, result)
            return result

        return call

    def _told(self, hearer, *what):
        self._is_busy = True
        try:
            hearer(*what)
        finally:
            self._is_busy = False


class Disk:
    """What is on the disk if the power fails: what was fsynced, and some of the names that were changed since the folder was."""

    def __init__(self, folder):
        self.folder = folder
        self.contents = {}
        for path in self._files():
            self.contents[path.stat().st_ino] = path.read_bytes()
        self.listings = [self._listing()]

    def after(self, number, name, arguments, result):
        if name == "fsync":
            target = Path(f"/proc/self/fd/{arguments[0]}").readlink()
            if target == self.folder:
                self.listings = [self._listing()]
            else:
                self.contents[os.fstat(arguments[0]).st_ino] = Path(f"/proc/self/fd/{arguments[0]}").read_bytes()
        elif (listing := self._listing()) != self.listings[-1]:
            self.listings.append(listing)

    def left(self, folder):
        """Yield a folder for each state that a power failure may leave now."""
        for number, listing in enumerate(self.listings):
            state = folder / f"state{number}"
            state.mkdir(parents=True)
            for name, inode in listing.items():
                (state / name).write_bytes(self.contents.get(inode, b""))
            yield state
            shutil.rmtree(state)

    def _files(self):
        return [path for path in self.folder.iterdir() if path.is_file()]

    def _listing(self):
        return {path.name: path.stat().st_ino for path in self._files()}


class Editor:
    """Somebody who saves MEMORY.md with one more line: from a copy that he opened before, or from a fresh one."""

    def __init__(self, path, line, kind):
        self.path, self.line, self.kind = path, line, kind
        self.copy = path.read_text()
        self.descriptor = os.open(path, os.O_RDWR) if kind == "opened before" else -1
        self.has_saved = False

    def save(self):
        """Save, in the way of the kind."""
        self.has_saved = True
        is_fresh = self.kind.startswith("fresh") and self.path.exists()
        text = (self.path.read_text() if is_fresh else self.copy) + self.line
        if self.kind.endswith("renamed"):
            draft = self.path.with_name("editor~")
            draft.write_text(text)
            draft.replace(self.path)
        elif self.kind == "opened before":
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, text.encode(), 0)
            os.close(self.descriptor)
        else:
            self.path.write_text(text)


KINDS = ("fresh renamed", "fresh in place", "older renamed", "older in place", "opened before")
