"""The scenario file of `dmodels transfer`: tables of TOML with quantities as text, checked before anything runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from dmodels.core.scenario import FileName, Table, quantity

Seconds = Annotated[float, quantity("s"), Field(ge=0)]
Rate = Annotated[float, quantity("B/s"), Field(ge=0)]
Bytes = Annotated[float, quantity("B"), Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
_FOUR = Field(min_length=4, max_length=4)


class ModelTable(Table):
    """What is served, and how its KV cache is stored."""

    name: FileName = "llama-3-70b"
    kv_dtype: str | None = None
    tp: Count = 4


class FabricTable(Table):
    """The fat-tree. `tiers`: NVLink, then what one flow gets within a rack, within a pod, across pods.

    Within a rack the links are the instances' ports: where `tiers` are given and `port` is not, a port has the speed of
    the second tier.
    """

    pods: Count = 2
    racks_per_pod: Count = 2
    servers_per_rack: Count = 2
    instances_per_server: Count = 2
    tiers: Annotated[list[Rate], _FOUR] = ("450 GB/s", "50 Gbit/s", "25 Gbit/s", "12.5 Gbit/s")
    latency: Annotated[list[Seconds], _FOUR] = ("1 us", "5 us", "10 us", "20 us")
    ports: Count = 4
    port: Rate | None = "400 Gbit/s"
    nic: Rate | None = None
    rack_uplinks: Count = 64
    pod_uplinks: Count = 128

    @model_validator(mode="after")
    def _ports_of_the_second_tier(self) -> FabricTable:
        if "tiers" in self.model_fields_set and "port" not in self.model_fields_set:
            self.port = None
        return self


class PoolTable(Table):
    """The first `prefill_instances` instances prefill, the others decode."""

    prefill_instances: Count = 4
    kv_memory: Bytes = "180 GB"


class TrafficTable(Table):
    """A bundled workload, or a trace file of your own, restricted to prompts between two bounds."""

    workload: str = "mooncake"
    trace: FileName | None = None
    rate: Annotated[float, quantity("req/s"), Field(gt=0)] = "6 req/s"
    min_tokens: Annotated[float, Field(ge=1)] = 1024.0
    max_tokens: Annotated[float, Field(ge=1)] = 131072.0
    ttft_slo: Seconds = "5 s"
    shared_prefix: Annotated[float, Field(ge=0, le=1)] = 0.24

    @model_validator(mode="after")
    def _ordered(self) -> TrafficTable:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens:g} is above max_tokens {self.max_tokens:g}")
        return self


class PrefillTable(Table):
    """Time in prefill: base plus a time per prompt token."""

    base: Seconds = "50 ms"
    per_token: Seconds = "68 us"


class TelemetryTable(Table):
    """Background load, as the oracle reports it, how it wanders, and how often it is read."""

    background: list[Share] | Share = 0.0
    refresh: Seconds = "1 s"
    std: Share = 0.05
    correlation_time: Seconds = "60 s"

    @model_validator(mode="after")
    def _by_tier(self) -> TelemetryTable:
        if isinstance(self.background, list) and len(self.background) != 4:
            raise ValueError(f"background has {len(self.background)} entries; one number or four are accepted")
        if self.refresh <= 0:
            raise ValueError("refresh is 0; a time above 0 is accepted")
        return self


class RunTable(Table):
    """How long and how often to simulate."""

    runs: Annotated[int, Field(ge=2, le=1000)] = 10
    warmup: Seconds = "5 s"
    measure: Annotated[float, quantity("s"), Field(gt=0)] = "15 s"
    contexts: list[Annotated[float, Field(ge=1)]] = (1024, 4096, 8192, 16384, 32768, 65536, 131072)


class TransferScenario(Table):
    """A whole file; every table has defaults: NetKV's cluster under the RAG workload."""

    model: ModelTable = ModelTable()
    fabric: FabricTable = FabricTable()
    pools: PoolTable = PoolTable()
    traffic: TrafficTable = TrafficTable()
    prefill: PrefillTable = PrefillTable()
    telemetry: TelemetryTable = TelemetryTable()
    simulation: RunTable = RunTable()

    @model_validator(mode="after")
    def _pools_fit(self) -> TransferScenario:
        f = self.fabric
        instances = f.pods * f.racks_per_pod * f.servers_per_rack * f.instances_per_server
        if self.pools.prefill_instances >= instances:
            raise ValueError(
                f"pools.prefill_instances is {self.pools.prefill_instances} of {instances} instances; "
                "one instance at least must decode"
            )
        return self
