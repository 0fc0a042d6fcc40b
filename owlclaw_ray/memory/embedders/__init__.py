"""What turns memories into vectors: a local model, or a provider's."""

from owlclaw_ray.memory.embedders.choice import ConfiguredEmbedders, FixedEmbedder
from owlclaw_ray.memory.embedders.gateway import PREFIX, GatewayEmbedder
from owlclaw_ray.memory.embedders.local import LocalEmbedder, installed

__all__ = [
    "PREFIX",
    "ConfiguredEmbedders",
    "FixedEmbedder",
    "GatewayEmbedder",
    "LocalEmbedder",
    "installed",
]
