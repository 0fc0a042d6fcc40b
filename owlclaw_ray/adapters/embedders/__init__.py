"""What turns memories into vectors: a local model, or a provider's."""

from owlclaw_ray.adapters.embedders.choice import ConfiguredEmbedders, OneEmbedder
from owlclaw_ray.adapters.embedders.gateway import PREFIX, GatewayEmbedder
from owlclaw_ray.adapters.embedders.local import LocalEmbedder, installed

__all__ = [
    "PREFIX",
    "ConfiguredEmbedders",
    "GatewayEmbedder",
    "LocalEmbedder",
    "OneEmbedder",
    "installed",
]
