"""Sizes of the attention blocks that the module tables name: what `operators.block` needs of a model.

From the models' config.json where it is public: DeepSeek-V3 and V3.2 and GLM-5. Of DeepSeek-V4 and MiniMax-M3 only
hidden size and heads are in the tables' shapes; the other sizes are assumed (`ASSUMED`), and the constants of their
kinds, which no other model shares, take up the difference: do not use them for another model.
"""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """Weights of one layer's attention, as `operators.block.FIELDS` counts them."""

    token_weights: float
    head_weights: float
    expanded: tuple[float, float]  # query-key and value dimensions of a prompt's heads
    latent: tuple[float, float]  # of a new token against the cache
    entries: float  # elements cached per entry
    top_k: float = 0.0
    index_dim: float = 0.0


def _latent(
    hidden: int, q_rank: int, kv_rank: int, rope: int, nope: int, value: int, indexers: int = 0, top_k: int = 0
) -> Block:
    indexer = indexers * 128 * q_rank + hidden * (128 + indexers) if indexers else 0
    return Block(
        hidden * (q_rank + kv_rank + rope) + indexer,
        q_rank * (nope + rope) + kv_rank * (nope + value) + value * hidden,
        (nope + rope, value),
        (kv_rank + rope, kv_rank),
        kv_rank + rope,
        top_k,
        indexers * 128,
    )


_V3 = (7168, 1536, 512, 64, 128, 128)
_GLM5 = (6144, 2048, 512, 64, 192, 256)
#: Model, as tables name it (without the organisation, lower case, by its beginning) -> sizes.
BLOCKS = {
    "deepseek-v3.2": _latent(*_V3, indexers=64, top_k=2048),
    "deepseek-v3": _latent(*_V3),
    "glm-5": _latent(*_GLM5, indexers=32, top_k=2048),
}
ASSUMED = {
    "deepseek-v4-pro": _latent(7168, 1536, 448, 64, 448, 512, indexers=64, top_k=1024),
    "deepseek-v4-flash": _latent(4096, 1024, 448, 64, 448, 512, indexers=64, top_k=512),
    "minimax-m3": Block(6144 * 1024.0, 6144 * 256.0, (128.0, 128.0), (128.0, 128.0), 1024.0, 2048.0, 512.0),
}


def block(model: str) -> Block | None:
    """The sizes of a model by the name in a table; None: not known."""
    name = model.split("/")[-1].lower()
    for known in sorted(BLOCKS | ASSUMED, key=len, reverse=True):
        if name.startswith(known):
            return (BLOCKS | ASSUMED)[known]
    return None
