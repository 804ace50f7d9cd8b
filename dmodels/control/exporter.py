"""The four Prometheus metrics of section 6.4 of "The Price of Anarchy in Disaggregated Inference".

game_poa, game_saturation_state, game_router_temperature (gauges) and game_routing_cost (histogram).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmodels.core.errors import InputError

#: Upper edges of the cost histogram, in blocks.
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class RouterMetrics:
    """Metrics of one router in a registry of its own, so that several routers and tests do not meet.

    The paper calls game_routing_cost the "per-worker routing cost distribution", while its Algorithm 1 records the time
    that a routing decision took. Here it is the cost of Eq. (1) of the chosen worker, with the worker as label.
    """

    def __init__(self, registry: Any = None, buckets: Sequence[float] = BUCKETS):
        try:
            from prometheus_client import CollectorRegistry, Gauge, Histogram
        except ImportError:
            raise InputError("metrics need prometheus-client; pip install 'dmodels[metrics]'") from None
        self.registry = CollectorRegistry() if registry is None else registry
        self.poa = Gauge("game_poa", "PoA-hat of the latest window", registry=self.registry)
        self.state = Gauge("game_saturation_state", "0 below, 1 transition, 2 saturated", registry=self.registry)
        self.temperature = Gauge("game_router_temperature", "tau now in use", registry=self.registry)
        self.cost = Histogram(
            "game_routing_cost",
            "cost of the chosen worker in blocks, Eq. (1)",
            ["worker"],
            buckets=buckets,
            registry=self.registry,
        )

    def window(self, poa: float) -> None:
        """A new value of PoA-hat."""
        self.poa.set(poa)

    def sampled(self, action: Any) -> None:
        """The controller's `Action` after a sample."""
        self.state.set(int(action.regime))
        self.temperature.set(float(action.tau))

    def routed(self, worker: str | int, cost_blocks: float) -> None:
        """One request went to `worker` at this cost."""
        self.cost.labels(worker=str(worker)).observe(float(cost_blocks))

    def serve(self, port: int = 0, address: str = "127.0.0.1") -> tuple[Any, int]:
        """Serve /metrics in a thread; returns (server, port). Close with `server.shutdown(); server.server_close()`."""
        from prometheus_client import start_http_server

        server, _ = start_http_server(port, addr=address, registry=self.registry)
        return server, server.server_port
