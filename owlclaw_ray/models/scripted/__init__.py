"""Models that follow a script: no network, no key, the same answer every time."""

from owlclaw_ray.models.scripted.client import ScriptedClient
from owlclaw_ray.models.scripted.library import packaged_scripts
from owlclaw_ray.models.scripted.script import (
    ScriptedCall,
    ScriptedError,
    ScriptedReply,
    ScriptedRequest,
    ScriptedResult,
)

__all__ = [
    "ScriptedCall",
    "ScriptedClient",
    "ScriptedError",
    "ScriptedReply",
    "ScriptedRequest",
    "ScriptedResult",
    "packaged_scripts",
]
