"""The arguments of the code tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Path = Annotated[str, Field(min_length=1, max_length=4_096)]
_FILE = "Path of the file: absolute, or from the project's folder on."
_FOLDER = "Path of the folder: absolute, or from the project's folder on."


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReadFile(_Arguments):
    """Arguments of code.read_file."""

    path: Path = Field(description=_FILE)
    start_line: int = Field(default=1, ge=1, description="The first line to return, counted from 1.")
    max_lines: int = Field(default=200, ge=1, le=1_000, description="How many lines to return at most.")


class ListDir(_Arguments):
    """Arguments of code.list_dir."""

    path: Path = Field(default=".", description=_FOLDER)
    recursive: bool = Field(default=False, description="Whether to list what is in its folders too.")
    limit: int = Field(default=200, ge=1, le=1_000, description="How many entries to return at most.")


class Search(_Arguments):
    """Arguments of code.search."""

    query: str = Field(min_length=1, max_length=1_000, description="What to look for, within one line.")
    path: Path = Field(default=".", description="The folder or file to search.")
    glob: str = Field(
        default="",
        max_length=1_000,
        description="Only files that match: *.py for names anywhere, src/**/*.py for paths below the searched folder.",
    )
    regex: bool = Field(default=False, description="Whether the query is a regular expression; else it is plain text.")
    limit: int = Field(default=100, ge=1, le=1_000, description="How many matching lines to return at most.")


class WriteFile(_Arguments):
    """Arguments of code.write_file."""

    path: Path = Field(description=_FILE)
    content: str = Field(description="The whole content of the file.")
    create_dirs: bool = Field(default=True, description="Whether to make folders that are missing.")
    overwrite: bool = Field(default=False, description="Whether a file that exists is replaced.")


class Edit(_Arguments):
    """One replacement."""

    old: str = Field(min_length=1, description="The text to replace, exactly as it is in the file, in one place only.")
    new: str = Field(description="What comes in its place.")
    replace_all: bool = Field(default=False, description="Whether to replace it wherever it is.")


class EditFile(_Arguments):
    """Arguments of code.edit_file."""

    path: Path = Field(description=_FILE)
    edits: list[Edit] | None = Field(
        default=None, min_length=1, max_length=100, description="Replacements, made one after another."
    )
    unified_diff: str | None = Field(
        default=None, min_length=1, description="A unified diff of this one file, instead of edits."
    )
    create_if_missing: bool = Field(
        default=False, description="Whether a file that does not exist counts as an empty one; for a diff only."
    )


class RunCommand(_Arguments):
    """Arguments of code.run_command."""

    argv: list[str] = Field(
        min_length=1,
        max_length=1_000,
        description='The program and its arguments, such as ["git", "status", "--short"]. No shell reads them.',
    )
    cwd: Path = Field(default=".", description="The folder to run it in; by default the project's.")
