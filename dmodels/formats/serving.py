"""What runs: one engine instance by the settings that decide its capacity, groups of equal instances, and the fleet.

Every format of a deployment is written from these records and read into them. None is the engine's own default.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

#: What a server does for its requests.
SERVE, PREFILL, DECODE = ROLES = ("serve", "prefill", "decode")


@dataclass(frozen=True)
class Server(Answer):
    """One instance of an engine. Limits are those of one attention rank; `ep` is 1 or all tp * dp GPUs of a stage."""

    derived = ("gpus",)
    engine: str  # of `engines.ENGINES`
    model: str  # the checkpoint: a Hugging Face id or a path
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    quantization: str = ""  # in which the engine loads the weights, in its own words; "": as the checkpoint stores them
    kv_dtype: str = ""  # of the cache: "fp8", "bf16"; "": as the checkpoint says
    max_model_len_tokens: int | None = None
    max_num_seqs_count: int | None = None
    max_num_batched_tokens: int | None = None
    memory_frac: float | None = None
    role: str = SERVE
    nodes: int = 1  # hosts that its command line starts it over; deployments count hosts themselves
    others: tuple[str, ...] = ()  # arguments of a file that was read which say nothing about capacity

    @property
    def gpus(self) -> int:
        """GPUs of the instance."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class ServerPool(Answer):
    """Equal servers behind one queue."""

    derived = ("gpus",)
    name: str
    server: Server
    replicas: int
    gpu: str = ""  # the catalogue's name; "": the file does not say
    max_replicas: int = 0  # that an autoscaler may start; 0: it has none
    target_requests: int = 0  # in flight per server at the planned load, which an autoscaler holds; 0: not stated

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.replicas * self.server.gpus


@dataclass(frozen=True)
class Serving(Answer):
    """Pools that together serve one model. `threshold_tokens` parts a short pool from a long one."""

    derived = ("gpus",)
    name: str
    pools: tuple[ServerPool, ...]
    threshold_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.pools:
            raise InputError("deployment: no server in it; accepted is at least one")

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def split(self) -> bool:
        """Whether prefill and decode have pools of their own."""
        return any(pool.server.role != SERVE for pool in self.pools)

    @property
    def engine(self) -> str:
        """The engine of every pool."""
        return self.pools[0].server.engine

    @property
    def model(self) -> str:
        """The checkpoint of every pool."""
        return self.pools[0].server.model

    def pool(self, role: str) -> ServerPool:
        """The pool of one role."""
        found = [pool for pool in self.pools if pool.server.role == role]
        if len(found) != 1:
            raise InputError(f"deployment {self.name}: {len(found)} pools for {role}; accepted is one")
        return found[0]
