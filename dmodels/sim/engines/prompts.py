"""What prompts have in common, block by block, and the compiled memory of an instance: free blocks and a prefix cache.

Blocks of a prompt that nobody uses any more stay until a block is needed and none is free; then the one goes that was
released first (least recently used; of one request the last blocks first). Sources: vllm/v1/core/block_pool.py,
`free_blocks` in reverse; sglang/srt/mem_cache/radix_cache.py; TensorRT-LLM's block reuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import NONE, inline
from dmodels.core.errors import InputError


class SharedPrompts(NamedTuple):
    """The full blocks of every prompt by what is in them: equal names, equal text up to their end."""

    content: np.ndarray  # names of the blocks of all requests, one after the other: 0, 1, ...
    start: np.ndarray  # (n + 1,) where each request's begin
    tokens: int  # of a block, a multiple of the engine's

    @classmethod
    def of(cls, hashes: Sequence[Sequence[int]], tokens: int) -> SharedPrompts:
        """From the hash ids of each request's blocks of so many tokens (Mooncake's trace: 512).

        >>> SharedPrompts.of([[7, 8], [7]], 512).content.tolist()
        [0, 1, 0]
        """
        flat = [one for own in hashes for one in own]
        _, names = np.unique(np.array(flat, np.int64), return_inverse=True)
        start = np.concatenate([[0], np.cumsum([len(own) for own in hashes])])
        return cls(names.astype(np.int64).ravel(), start.astype(np.int64), int(tokens))

    @classmethod
    def none(cls, count: int, tokens: int) -> SharedPrompts:
        """No two prompts have anything in common."""
        return cls(np.zeros(0, np.int64), np.zeros(count + 1, np.int64), tokens)

    def checked(self, input_tokens: np.ndarray, block_tokens: int) -> SharedPrompts:
        """These, cut to the full blocks of each prompt."""
        if self.tokens < 1 or self.tokens % block_tokens or self.start.size != input_tokens.size + 1:
            raise InputError(
                f"prefixes: blocks of {self.tokens} tokens of {self.start.size - 1} requests; accepted: a multiple of "
                f"{block_tokens} tokens, and blocks of each of {input_tokens.size} requests"
            )
        full = input_tokens // self.tokens
        own = [self.content[a : min(b, a + f)] for a, b, f in zip(self.start, self.start[1:], full, strict=False)]
        start = np.concatenate([[0], np.cumsum([len(one) for one in own])]).astype(np.int64)
        return self._replace(content=np.concatenate(own) if own else self.content, start=start)


class Cache(NamedTuple):
    """Blocks of every instance (rows). Content that is there and unused is a chain from the one released first."""

    free: np.ndarray  # (instances,) engine blocks that hold nothing
    idle: np.ndarray  # (instances,) engine blocks of content that is there and unused
    users: np.ndarray  # (instances, contents); -1: not there
    after: np.ndarray  # (instances, contents + 1) the chain; the last column is its end
    before: np.ndarray
    unit: int  # engine blocks of one content

    @classmethod
    def empty(cls, instances: int, blocks: int, contents: int, unit: int) -> Cache:
        """All blocks free."""
        ring = np.full((instances, contents + 1), contents, np.int64)
        return cls(
            np.full(instances, blocks, np.int64),
            np.zeros(instances, np.int64),
            np.full((instances, contents), NONE, np.int64),
            ring,
            ring.copy(),
            unit,
        )


@inline
def room(cache: Cache, k: int) -> Any:
    """Blocks that can be had."""
    return cache.free[k] + cache.idle[k]


@inline
def take(cache: Cache, k: int, blocks: int) -> None:
    """Have `blocks` (of what `room` says), at the cost of unused content."""
    cache.free[k] -= blocks
    end = cache.users.shape[1]
    while cache.free[k] < 0:
        first = cache.after[k, end]
        unchain(cache, k, first)
        cache.users[k, first] = NONE
        cache.free[k] += cache.unit


@inline
def unchain(cache: Cache, k: int, c: int) -> None:
    """Content c is used again, or goes."""
    cache.after[k, cache.before[k, c]] = cache.after[k, c]
    cache.before[k, cache.after[k, c]] = cache.before[k, c]
    cache.idle[k] -= cache.unit


@inline
def leave(cache: Cache, k: int, c: int) -> None:
    """One user less of content c; the last one leaves it at the end of the chain."""
    cache.users[k, c] -= 1
    if cache.users[k, c] == 0:
        end = cache.users.shape[1]
        last = cache.before[k, end]
        cache.after[k, last], cache.before[k, c] = c, last
        cache.after[k, c], cache.before[k, end] = end, c
        cache.idle[k] += cache.unit
