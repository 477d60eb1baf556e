"""The GPUs that Legroom knows, the user's own, what a framework can use of them, and how XLA wants them described."""

from legroom.gpus.card import PRECISIONS, Gpu
from legroom.gpus.cardfile import catalogue, read_cards
from legroom.gpus.limits import LIMITS, Limits
from legroom.gpus.lookup import find
from legroom.gpus.target import target_description
from legroom.gpus.usable import Framework, Usable, context_bytes, jax_pool_bytes, usable_bytes, usable_memory

__all__ = [
    "LIMITS",
    "PRECISIONS",
    "Framework",
    "Gpu",
    "Limits",
    "Usable",
    "catalogue",
    "context_bytes",
    "find",
    "jax_pool_bytes",
    "read_cards",
    "target_description",
    "usable_bytes",
    "usable_memory",
]
