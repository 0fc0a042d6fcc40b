"""The memory of one agent in the files of a folder."""

from owlclaw_ray.domain.memory import MemoryLimits
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.file_home import AgentFiles


def open_file(folder, **limits):
    """Return it; its `path` is that of MEMORY.md."""
    file = MemoryFile(AgentFiles(folder), MemoryLimits(**limits))
    file.path = folder / "MEMORY.md"
    return file
