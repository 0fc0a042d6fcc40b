"""Long-term memory in MEMORY.md files with a LanceDB index beside each."""

from owlclaw_ray.memory.lance.store import LanceMemory

__all__ = ["LanceMemory"]
