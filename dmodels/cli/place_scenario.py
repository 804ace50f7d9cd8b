"""The scenario of `dmodels place`: a model on GPUs, tiers of memory, a target, workers that share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from .calls import Code, call
from .schema import Degree, FileName, GpuTable, ModelTable, Seconds, Table, Wait, flag, quantity

Size = Annotated[float, quantity("B"), Field(ge=0)]
Speed = Annotated[float, quantity("B/s"), Field(gt=0)]
Price = Annotated[float, Field(ge=0)]

#: US dollars per GiB. From memory of 2025 street prices, not from a quotation: HBM as one H100's share of its price,
#: DRAM as DDR5 modules, SSD as data-centre NVMe. Give your own as `price` in each tier.
PRICES = {"hbm": 375.0, "dram": 5.0, "ssd": 0.12, "remote": 0.0}


class ParallelTable(Table):
    """[parallel]: tensor parallelism of one worker."""

    tp: Degree = 1


class TraceTable(Table):
    """[trace]: a log with prefix blocks; the path is relative to the scenario's folder."""

    file: FileName | None = flag(None, "a Mooncake trace, instead of the scenario's", "--trace")
    repair: bool = False


class HbmTable(Table):
    """[tiers.hbm]: HBM left for cached prefixes, over all workers; read at the GPUs' own rate."""

    size: Size
    price: Price = PRICES["hbm"]


class DramTable(Table):
    """[tiers.dram]: total size; how fast one worker reads blocks from it."""

    size: Size
    bandwidth: Speed
    latency: Wait = "20 us"
    price: Price = PRICES["dram"]


class SsdTable(DramTable):
    """[tiers.ssd]: the same for local SSD."""

    latency: Wait = "100 us"
    price: Price = PRICES["ssd"]


class RemoteTable(Table):
    """[tiers.remote]: networked storage, without a limit unless a size is given."""

    size: Size | None = None
    bandwidth: Speed
    latency: Wait = "1 ms"
    price: Price = PRICES["remote"]


class TiersTable(Table):
    """[tiers]: from fast to slow."""

    hbm: HbmTable
    dram: DramTable | None = None
    ssd: SsdTable | None = None
    remote: RemoteTable | None = None


class TargetTable(Table):
    """[target]: share of block accesses that should hit, and a bound on the mean of loading plus prefill."""

    hit_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    first_token: Seconds | None = None

    @model_validator(mode="after")
    def _one_needs_the_other(self) -> TargetTable:
        if self.first_token is not None and self.hit_rate is None:
            raise ValueError("first_token needs hit_rate beside it (0 asks for no hits)")
        return self


class SharingTable(Table):
    """[sharing]: workers whose HBM is pooled or not, and the rate of reads from a peer (default: the GPU's)."""

    workers: Degree = 1
    link: Speed | None = None


class PolicyTable(Table):
    """[policy]: time between KVBM's decay steps (the paper names none; a minute is our choice)."""

    decay: Seconds = "60 s"


class PlaceAsked(Table):
    """The whole file."""

    model: ModelTable
    gpu: GpuTable
    parallel: ParallelTable = ParallelTable()
    trace: TraceTable = TraceTable()
    tiers: TiersTable
    target: TargetTable = TargetTable()
    sharing: SharingTable = SharingTable()
    policy: PolicyTable = PolicyTable()

    def call(self) -> Code:
        """The library call."""
        gpu = call("dmodels:catalog.gpu", self.gpu.name, self.gpu.file, label="gpu")
        rate = call("operator:mul", call("builtins:float", gpu.attribute("hbm_bytes_per_s")), self.parallel.tp)
        tiers = [self._tier("HBM", self.tiers.hbm, rate, 0.0)]
        for name, tier in (("DRAM", self.tiers.dram), ("SSD", self.tiers.ssd), ("remote", self.tiers.remote)):
            if tier is not None:
                tiers.append(self._tier(name, tier, tier.bandwidth, tier.latency))
        return call(
            "dmodels.studies.place:place",
            call("dmodels:read_trace", self.trace.file, repair=self.trace.repair or None),
            call("dmodels:catalog.model", self.model.name),
            gpu,
            call("dmodels:Parallel", tp=self.parallel.tp),
            tiers,
            target_hit_frac=self.target.hit_rate,
            target_first_token_s=self.target.first_token,
            workers=self.sharing.workers,
            link_bytes_per_s=self.sharing.link,
            decay_s=self.policy.decay,
        )

    def _tier(self, name: str, tier: Any, bytes_per_s: Any, latency_s: float) -> Code:
        size_bytes = float("inf") if tier.size is None else tier.size
        return call("dmodels.studies.place:Tier", name, size_bytes, bytes_per_s, latency_s, tier.price)
