"""What a plan is asked, read from flags or from a scenario file, and turned into a `Question`: one road for both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from dmodels.core.errors import InputError

from .scenario import Degree, EngineTable, ModelTable, Rate, Seconds, Table, WorkloadTable, quantity, read_scenario


@dataclass(frozen=True)
class PlanInputs:
    """The flags of `dmodels plan` as numbers in base units."""

    model: str
    gpus: tuple[str, ...]
    trace: str | None = None
    workload: str = "azure-conv"
    isl: float | None = None
    osl: float | None = None
    rate_rps: float | None = None  # None: the traffic's own
    ttft_s: float = 2.0
    tpot_s: float = 0.08
    e2e_s: float = float("inf")
    percentile: float = 0.99
    prefix_hits: bool = False
    repair: bool = False
    gpu_file: str | None = None
    price_usd_per_hour: dict[str, float] = field(default_factory=dict)  # of one GPU; others as in the catalogue
    max_num_seqs: float = 256.0
    max_num_batched_tokens: float = 8192.0
    options: dict[str, Any] = field(default_factory=dict)  # of `Question`: tp, pp, weights, kv, thresholds, ...

    def question(self) -> tuple[Any, list[str]]:
        """(the `Question`, what the reader of the trace wants to be known)."""
        from dmodels.core.hardware import SLO
        from dmodels.models.instance import Engine
        from dmodels.studies.plan import question

        traffic, name, notices = self._traffic()
        slo = SLO(self.ttft_s, self.tpot_s, self.e2e_s, self.percentile)
        engine = Engine(self.max_num_seqs, self.max_num_batched_tokens)
        asked = question(
            self.model,
            list(self.gpus),
            traffic,
            slo,
            gpu_file=self.gpu_file,
            workload_name=name,
            engine=engine,
            **self.options,
        )
        return replace(asked, gpus=self._priced(asked.gpus)), notices

    def _priced(self, gpus: dict[str, Any]) -> dict[str, Any]:
        from dmodels import catalog

        given = {catalog.gpu_facts(name, self.gpu_file)["name"]: x for name, x in self.price_usd_per_hour.items()}
        for name in given:
            if name not in gpus:
                raise InputError(f"gpu.price.{name}: accepted are prices of {', '.join(gpus)}")
        return {
            name: gpu.replace(price_usd_per_hour=given[name]) if name in given else gpu for name, gpu in gpus.items()
        }

    def _traffic(self) -> tuple[Any, str, list[str]]:
        from dmodels.core.workload import Workload

        if self.isl is not None:
            if self.trace is not None:
                raise InputError("--trace and --isl: give one of them")
            if self.rate_rps is None:
                raise InputError("--rate is missing: fixed lengths have no rate of their own")
            lengths = f"ISL {self.isl:g} / OSL {self.osl:g}"
            return Workload.fixed(self.isl, self.osl, self.rate_rps), lengths, []
        if self.trace is not None:
            from dmodels.models.traffic import read_trace, with_prefix_hits

            read = read_trace(self.trace, repair=self.repair)
            read = with_prefix_hits(read) if self.prefix_hits else read
            found = Workload.from_trace(read, self.rate_rps)
            found = found if self.prefix_hits else found.replace(cached_tokens=0.0)
            return found, Path(self.trace).name, read.notices
        from dmodels.catalog import workload as bundled

        return bundled(self.workload, self.rate_rps, self.prefix_hits), self.workload, []

    def python(self) -> str:
        """The same as a library call."""
        from dmodels import catalog

        if self.isl is not None:
            traffic = f"Workload.fixed({self.isl!r}, {self.osl!r}, {self.rate_rps!r})"
        elif self.trace is not None:
            read = f"read_trace({self.trace!r}, repair={self.repair})"
            read = f"with_prefix_hits({read})" if self.prefix_hits else read
            traffic = f"Workload.from_trace({read}, {self.rate_rps!r})"
            traffic += "" if self.prefix_hits else ".replace(cached_tokens=0.0)"
        else:
            traffic = f"catalog.workload({self.workload!r}, {self.rate_rps!r}, {self.prefix_hits})"
        bounds = (self.ttft_s, self.tpot_s, self.e2e_s, self.percentile)
        slo = ", ".join('float("inf")' if x == float("inf") else repr(x) for x in bounds)
        given = ", ".join(f"{k}={v!r}" for k, v in self.options.items() if v != float("inf"))
        engine = f"Engine({self.max_num_seqs!r}, {self.max_num_batched_tokens!r})"
        lines = [
            "from dmodels import SLO, catalog",
            "from dmodels.core.workload import Workload",
            "from dmodels.models.instance import Engine",
            "from dmodels.models.traffic import read_trace, with_prefix_hits",
            "from dmodels.studies.plan import plan, question",
            "",
            f"asked = question({self.model!r}, {list(self.gpus)!r}, {traffic}, SLO({slo}), "
            f"gpu_file={self.gpu_file!r}, engine={engine}, {given})",
        ]
        names = {catalog.gpu_facts(name, self.gpu_file)["name"]: x for name, x in self.price_usd_per_hour.items()}
        lines += [
            f"asked.gpus[{name!r}] = asked.gpus[{name!r}].replace(price_usd_per_hour={price!r})"
            for name, price in names.items()
        ]
        return "\n".join([*lines, "answer = plan(asked)"])


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


Price = Annotated[float, quantity("USD/h"), Field(gt=0)]
Names = Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
Degrees = Annotated[list[Degree], BeforeValidator(_listed), Field(min_length=1)]


class GpuTable(Table):
    """[gpu]: the types to choose from, a file of one's own, prices of one GPU."""

    name: Names
    file: str | None = None
    price: dict[str, Price] = Field(default_factory=dict)


class PlanWorkload(WorkloadTable):
    """[workload]: as elsewhere, with what a trace allows."""

    prefix_hits: bool = False
    repair: bool = False

    @model_validator(mode="before")
    @classmethod
    def _by_flag(cls, given: Any) -> Any:
        """`isl` and `osl`, as the flags are called, are the same fields."""
        names = {"isl": "input_tokens", "osl": "output_tokens"}
        return {names.get(key, key): value for key, value in given.items()} if isinstance(given, dict) else given


class PlanSlo(Table):
    """[slo]: bounds that a share `percentile` of requests keeps."""

    ttft: Seconds = 2.0
    tpot: Seconds = 0.08
    e2e: Seconds = float("inf")
    percentile: float = Field(0.99, ge=0.5, lt=1)


class PlanTraffic(Table):
    """[traffic]: the rate, where it is not the workload's own."""

    rate: Rate | None = None


class SpaceTable(Table):
    """[space]: what is tried."""

    tp: Degrees = Field(default_factory=lambda: [1, 2, 4, 8])
    pp: Degrees = Field(default_factory=lambda: [1])
    weights: Names = Field(default_factory=lambda: ["as published"])
    kv: Names = Field(default_factory=lambda: ["as published"])
    thresholds: list[Annotated[float, Field(gt=0)]] | None = None
    split: bool = True
    max_gpus: float = Field(float("inf"), ge=1)


class PlanScenario(Table):
    """A scenario of `dmodels report` and `dmodels explore`."""

    model: ModelTable
    gpu: GpuTable
    workload: PlanWorkload
    slo: PlanSlo = PlanSlo()
    traffic: PlanTraffic = PlanTraffic()
    space: SpaceTable = SpaceTable()
    engine: EngineTable = EngineTable()


def from_scenario(path: Path) -> PlanInputs:
    """The inputs in a scenario file. Files that it names are looked for beside it, then where the command runs."""
    read = read_scenario(path, PlanScenario)
    space, w = read.space, read.workload
    return PlanInputs(
        model=_beside(path, read.model.name),
        gpus=tuple(read.gpu.name),
        trace=w.trace and _beside(path, w.trace),
        workload=w.name or "",
        isl=w.input_tokens,
        osl=w.output_tokens,
        rate_rps=read.traffic.rate,
        ttft_s=read.slo.ttft,
        tpot_s=read.slo.tpot,
        e2e_s=read.slo.e2e,
        percentile=read.slo.percentile,
        prefix_hits=w.prefix_hits,
        repair=w.repair,
        gpu_file=read.gpu.file and _beside(path, read.gpu.file),
        price_usd_per_hour=read.gpu.price,
        max_num_seqs=float(read.engine.max_num_seqs),
        max_num_batched_tokens=float(read.engine.max_num_batched_tokens),
        options={
            "tp": tuple(space.tp),
            "pp": tuple(space.pp),
            "weights": tuple(map(precision, space.weights)),
            "kv": tuple(map(precision, space.kv)),
            "thresholds_tokens": None if space.thresholds is None else tuple(space.thresholds),
            "split": space.split,
            "backend": read.engine.backend,
            "max_gpus": space.max_gpus,
        },
    )


def precision(text: str) -> str:
    """A precision as layouts call it: `as-published` is `as published`."""
    return "as published" if text.strip() in ("as-published", "as published") else text.strip()


def _beside(scenario: Path, named: str) -> str:
    there = scenario.parent / named
    return str(there) if there.is_file() else named
