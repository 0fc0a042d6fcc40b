"""code.run_command."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.code.arguments import RunCommand
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import Program, ProgramLimits, run_program
from owlclaw_ray.tools.programs import check_end, said_by


class Commands(Struct, frozen=True):
    """Runs commands with this environment, within these limits."""

    environment: Mapping[str, str]
    limits: ProgramLimits

    def run(self, arguments: RunCommand, policy: PathPolicy) -> JsonObject:
        """Run a program in a folder that may be written; its own limits are those of the user that the runtime runs as.

        Raises ToolFailureError: `command_failed` for an exit code other than 0, `timeout`, `command_not_found`.
        """
        if not arguments.argv[0] or any("\0" in each for each in arguments.argv):
            raise ToolArgumentsError("code.run_command", ["argv: holds an empty program or a NUL character"])
        folder = policy.permitted(arguments.cwd, Access.WRITE)
        shown = policy.shown(folder)
        if not folder.is_dir():
            raise ToolFailureError("not_a_directory", f"{shown} is no folder", details={"path": shown})
        try:
            end = run_program(Program(arguments.argv, folder, self.environment), self.limits)
        except OSError as error:
            kind = "command_not_found" if isinstance(error, FileNotFoundError) else "execution_failed"
            raise ToolFailureError(kind, f"{arguments.argv[0]!r} cannot be run: {error.strerror}") from error
        check_end(arguments.argv[0], end, self.limits)
        return said_by(end)
