"""What a plan is asked: the flags of `dmodels plan`, which are the keys of the scenario of `report` and `explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dmodels.core.errors import InputError

from .calls import Code, call
from .schema import (
    CalibrationTable,
    Degrees,
    DegreesOrNone,
    EngineTable,
    FileName,
    ModelTable,
    Names,
    Percent,
    PrecisionName,
    Price,
    Seconds,
    Table,
    TrafficTable,
    WorkloadTable,
    flag,
    read_scenario,
    several,
)

Precisions = Annotated[list[PrecisionName], BeforeValidator(several), Field(min_length=1)]
Thresholds = Annotated[list[Annotated[float, Field(gt=0)]], BeforeValidator(several)]


def _counts(value: Any) -> Any:
    """{name: count} from 'h100_sxm=32,l40s=16'."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in several(value)]
    if not all(name.strip() and sign for name, sign, _ in pairs):
        raise ValueError("accepted are GPU types with how many there are, like h100_sxm=32,l40s=16")
    return {name.strip(): count.strip() for name, _, count in pairs}


def _region(value: Any) -> Any:
    """A table from 'us-east: h100_sxm=32 at 2.1 $/h, l40s=16'."""
    if not isinstance(value, str):
        return value
    name, sign, rest = value.partition(":")
    parts = [[text.strip() for text in part.partition(" at ")] for part in several(rest)]
    if not (name.strip() and sign and all("=" in gpu for gpu, *_ in parts)):
        raise ValueError('accepted are a name and GPUs with how many there are, like "us-east: h100_sxm=32 at 2.1 $/h"')
    prices = {gpu.partition("=")[0].strip(): price for gpu, _, price in parts if price}
    return {"name": name.strip(), "inventory": _counts(",".join(gpu for gpu, *_ in parts)), "price": prices}


Counts = Annotated[dict[str, Annotated[int, Field(ge=0)]], BeforeValidator(_counts)]


class RegionTable(Table):
    """A place with GPUs, and prices of one where they are not as elsewhere."""

    name: str
    inventory: Counts
    price: dict[str, Price] = Field(default_factory=dict)

    def call(self) -> Code:
        """The region as a library call."""
        return call("dmodels.studies.plan:Region", self.name, self.inventory, self.price or None)


class GpuTable(Table):
    """[gpu]: the types to choose from, a file of one's own, prices of one GPU, how many there are."""

    name: Names = flag("h100_sxm,h200_sxm", "GPU types to choose from, like h100_sxm,h200_sxm", "--gpu")
    file: FileName | None = flag(None, "your own GPUs or prices (CSV or TOML)", "--gpu-file")
    price: dict[str, Price] = Field(default_factory=dict)
    inventory: Counts = flag({}, "GPUs that there are of each type, like h100_sxm=32,l40s=16", "--gpus")
    node: Annotated[int, Field(ge=1)] = flag(1, "GPUs are bought by whole nodes of so many", "--node-gpus")

    regions: list[Annotated[RegionTable, BeforeValidator(_region)]] = flag(
        [], 'a place with its GPUs and prices: "us-east: h100_sxm=32 at 2.1 $/h"', "--region", repeated=True
    )

    def region_calls(self) -> list[Code]:
        """The regions as library calls."""
        return [region.call() for region in self.regions]

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """What there is may be chosen from, unless names are given too."""
        if not isinstance(given, dict) or "name" in given:
            return given
        try:
            there = [given.get("inventory"), *(_region(one).get("inventory") for one in given.get("regions") or [])]
            names = [name for one in there if one for name in _counts(one)]
        except (ValueError, AttributeError, TypeError):
            return given  # refused where it is read
        return given | {"name": list(dict.fromkeys(names))} if names else given


class PlanWorkload(WorkloadTable):
    """[workload]: as elsewhere, with what a trace allows."""

    telemetry: FileName | None = flag(
        None, "traffic: what engines reported (Prometheus JSON or text; a file or folder)"
    )
    prefix_hits: bool = flag(False, "take prefix-cache hits of the trace off the prompts")
    cached_share: Annotated[float, Field(ge=0, lt=1), Percent] = flag(
        0.0, "share of the fixed input tokens that a prefix cache holds (with --isl)"
    )
    repair: bool = flag(False, "mend the trace: sort it, drop unreadable and empty requests")

    @model_validator(mode="after")
    def _of_a_trace(self) -> PlanWorkload:
        if self.repair and self.trace is None:
            raise ValueError("repair mends a trace (--trace); no trace is given")
        if self.prefix_hits and self.trace is None and self.name is None:
            raise ValueError("prefix_hits needs a trace or a bundled workload; fixed lengths and telemetry have none")
        if self.cached_share and self.input_tokens is None:
            raise ValueError("cached_share is of fixed lengths (--isl, --osl); a trace has a column cached_tokens")
        return self

    @model_validator(mode="before")
    @classmethod
    def _bundled(cls, given: Any) -> Any:
        kinds = {"name", "trace", "telemetry", "input_tokens", "output_tokens", "isl", "osl"}
        return given if not isinstance(given, dict) or kinds & set(given) else given | {"name": "azure-conv"}


def _class(value: Any) -> Any:
    """A table from 'chat: to 8000, ttft 2 s' or 'batch: team=nightly, ttft 60 s'."""
    if not isinstance(value, str):
        return value
    name, sign, rest = value.partition(":")
    parts = [part if "=" not in part else f"of {part}" for part in several(rest)]
    words = [part.partition(" ") for part in parts]
    if not (name.strip() and sign and words and all(given for _, _, given in words)):
        raise ValueError('accepted are a name and its bounds, like "chat: to 8000, ttft 2 s, tpot 80 ms"')
    return {"name": name.strip()} | {key.strip(): given.strip() for key, _, given in words}


class BoundsTable(Table):
    """[slo]: bounds that a share `percentile` of requests keeps."""

    ttft: Seconds = flag("2 s", "bound on time to first token", "--ttft", "--ttft-p99")
    tpot: Seconds = flag("80 ms", "bound on time per output token", "--tpot", "--tpot-p99")
    e2e: Seconds | None = flag(None, "bound on the whole request", "--e2e", "--e2e-p99")
    percentile: Annotated[float, Field(ge=0.5, lt=1), Percent] = flag(
        0.99, "share of requests that must meet each bound"
    )

    def call(self) -> Code:
        """The bounds as a library call."""
        whole = float("inf") if self.e2e is None else self.e2e
        return call("dmodels:SLO", self.ttft, self.tpot, whole, self.percentile)


class ClassTable(Table):
    """Requests of one kind, and their SLOs; where a bound is missing, that of [slo]."""

    name: str
    low: Annotated[float, Field(ge=0, alias="from")] = 0.0
    high: Annotated[float, Field(gt=0, alias="to")] = float("inf")
    of: Annotated[str, Field(pattern=r"^([^=]+=[^=]+)?$")] = ""  # a column of the trace and its value
    ttft: Seconds | None = None
    tpot: Seconds | None = None
    e2e: Seconds | None = None
    percentile: Annotated[float, Field(ge=0.5, lt=1), Percent] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0  # the lowest is served first, where one fleet serves several

    def call(self, others: BoundsTable) -> Code:
        """The class as a library call."""
        own = {name: getattr(self, name) or getattr(others, name) for name in BoundsTable.model_fields}
        slo = BoundsTable(**own).call()
        label = self.of.partition("=")[2].strip() or None
        who = self.name, slo, self.low, self.high, label
        return call("dmodels.studies.plan:RequestClass", *who, priority=self.priority or None)


class SloTable(BoundsTable):
    """[slo]: the same, and classes of requests with bounds of their own."""

    classes: list[Annotated[ClassTable, BeforeValidator(_class)]] = flag(
        [],
        'requests with SLOs of their own, by total tokens, "jobs: from 8000, ttft 60 s", or by a column of the trace, '
        '"batch: team=nightly, ttft 60 s, priority 1"; the lowest priority is served first, all others keep the SLOs '
        "of the plan",
        "--class",
        repeated=True,
    )

    def one_fleet(self, traffic: Code) -> Code:
        """The bounds of one fleet for `traffic` as a library call: of several classes, the tightest."""
        return call("dmodels.studies.plan:tightest", self.classes_call(traffic)) if self.classes else self.call()

    @property
    def label(self) -> str:
        """The column of the trace that tells the classes apart; "": none does."""
        columns = {kind.of.partition("=")[0].strip() for kind in self.classes} - {""}
        if len(columns) > 1:
            raise InputError(f"--class by {' and '.join(sorted(columns))}: one column is accepted")
        return "".join(columns)

    def classes_call(self, traffic: Any) -> Code:
        """The classes as a library call; requests of `traffic` that are of none keep the bounds of [slo]."""
        named = [kind.call(self) for kind in self.classes]
        return call("dmodels.studies.plan:with_others", named, traffic, self.call())


class SpaceTable(Table):
    """[space]: what is tried."""

    tp: Degrees = flag("1,2,4,8", "tensor-parallel degrees to try")
    pp: Degrees = flag("1", "pipeline-parallel degrees to try; beyond 1 nothing is measured")
    wide_ep: DegreesOrNone = flag("16,32", "GPUs to spread experts over beyond tp, attention on each; 0: none")
    weights: Precisions = flag("as-published", "weight precisions to try: as-published, bf16, fp8, fp4")
    kv: Precisions = flag("as-published", "KV precisions to try: as-published, bf16, fp8")
    checkpoint: str | None = flag(None, "what engines load for weights in a precision that is not published")
    thresholds: Thresholds | None = flag(None, "two-pool thresholds to try, in total tokens")
    split: bool = flag(True, "also try prefill/decode splits")
    max_gpus: Annotated[float, Field(ge=1)] = flag(float("inf"), "GPUs that there are, over all pools")
    budget: Price | None = flag(None, 'most that the fleet may cost, like "90 $/h"')


class MarginTable(Table):
    """[margin]: what the fleet keeps in hand."""

    headroom: Annotated[float, Field(ge=0, le=10), Percent] = flag(
        0.0, "keep the SLOs at this much more load: 0.2 is 20 %"
    )
    spare: Annotated[int, Field(ge=0, le=1000)] = flag(0, "keep them with so many instances less in each pool")
    confidence: Annotated[float, Field(ge=0.5, le=0.975), Percent] = flag(
        0.5, "keep them with this probability under the model's error"
    )
    size_for: Literal["trace", "next"] = flag(
        "trace", "traffic that the fleet is for: the recorded trace, or the next stretch as long as it"
    )

    def call(self) -> Code | None:
        """The margins as a library call."""
        if self.model_copy(update={"size_for": "trace"}) == MarginTable():
            return None
        return call("dmodels.studies.plan:Margins", self.headroom, self.spare, self.confidence)


class MeasuredTable(CalibrationTable):
    """[measured]: points of one's own, which the calibration is refitted to."""

    files: list[FileName] = flag(
        [], "calibrate on measured points: a report of a load generator", "--measured", repeated=True
    )
    tp: Annotated[int, Field(ge=0)] = flag(0, "tensor parallelism of what was measured", "--measured-tp")
    tuned: bool = flag(False, "servers tuned as those of MLPerf: the factor of its public runs on every step")

    @model_validator(mode="after")
    def _one_calibration(self) -> Self:
        if self.files and self.calibration is not None:
            raise ValueError("give measured points or a calibration, not both")
        if self.tuned and (self.files or self.calibration is not None):
            raise ValueError(
                "tuned: a factor on the shipped calibration; measured points and a calibration have their own"
            )
        return self

    def call(self, inputs: PlanInputs) -> Code | None:
        """The calibration, as a library call; the plan's model, engine and only GPU are what was measured."""
        if self.calibration is not None:
            return call("dmodels.fit.refit:read_own", self.calibration, label="measured")
        if not self.files:
            return None
        gpu = inputs.gpu.name[0] if len(inputs.gpu.name) == 1 else None
        said = {"model": inputs.model.name, "gpu": gpu, "engine": inputs.engine.backend, "tp": self.tp or None}
        machine = call("dmodels.fit.measured:Machine", **said)
        return call("dmodels.fit.refit:own_calibration", self.files, machine, label="measured")


class PlanInputs(Table):
    """A scenario of `dmodels report` and `dmodels explore`, and the flags of `dmodels plan`."""

    model: ModelTable = ModelTable()
    gpu: GpuTable = GpuTable()
    workload: PlanWorkload = PlanWorkload()
    traffic: TrafficTable = TrafficTable()
    slo: SloTable = SloTable()
    space: SpaceTable = SpaceTable()
    margin: MarginTable = MarginTable()
    engine: EngineTable = EngineTable()
    measured: MeasuredTable = MeasuredTable()

    def call(self) -> Code:
        """The `Question`, as a library call."""
        space, engine = self.space, self.engine
        traffic, workload_name = traffic_call(self.workload, self.traffic.rate)
        trace = trace_call(self.workload, self.slo.label)  # planned for as it came
        traffic = traffic if trace is None else trace
        return call(
            "dmodels.studies.plan:question",
            self.model.name,
            self.gpu.name,
            traffic,
            self.slo.one_fleet(traffic),
            rate_rps=None if trace is None else self.traffic.rate,
            gpu_file=self.gpu.file,
            prices_usd_per_hour=self.gpu.price or None,
            workload_name=workload_name,
            engine=engine_call(engine),
            tp=tuple(space.tp),
            pp=tuple(space.pp),
            wide_ep=tuple(n for n in space.wide_ep if n),
            weights=tuple(space.weights),
            kv=tuple(space.kv),
            checkpoint=space.checkpoint,
            measured=self.measured.call(self),
            tuned=self.measured.tuned or None,
            thresholds_tokens=None if space.thresholds is None else tuple(space.thresholds),
            split=space.split,
            backend=engine.backend,
            max_gpus=None if space.max_gpus == float("inf") else space.max_gpus,
            inventory=self.gpu.inventory or None,
            node_gpus=None if self.gpu.node == 1 else self.gpu.node,
            max_usd_per_hour=space.budget,
            margins=self.margin.call(),
            size_for=None if self.margin.size_for == "trace" else self.margin.size_for,
            label="asked",
        )


def engine_call(asked: EngineTable) -> Code:
    """The engine's limits as a library call."""
    limits = float(asked.max_num_seqs), float(asked.max_num_batched_tokens)
    return call("dmodels.models.instance:Engine", *limits)


def traffic_call(asked: WorkloadTable, rate_rps: float | None) -> tuple[Code, str]:
    """(the workload as a library call, its name)."""
    if asked.trace is not None:
        return call("dmodels:Workload.from_trace", trace_call(asked), rate_rps), Path(asked.trace).name
    if (telemetry := getattr(asked, "telemetry", None)) is not None:
        return call("dmodels.formats.telemetry:read_workload", telemetry, rate_rps), Path(telemetry).name
    if asked.name is not None:
        hits = getattr(asked, "prefix_hits", False)
        return call("dmodels:catalog.workload", asked.name, rate_rps, hits or None), asked.name
    if rate_rps is None:
        raise InputError("--rate is missing: fixed lengths have no rate of their own (traffic.rate in a scenario)")
    lengths = f"ISL {asked.input_tokens:g} / OSL {asked.output_tokens:g}"
    cached = (getattr(asked, "cached_share", 0.0) * (asked.input_tokens or 0.0)) or None
    return call("dmodels:Workload.fixed", asked.input_tokens, asked.output_tokens, rate_rps, cached), lengths


def trace_call(asked: WorkloadTable, class_column: str = "") -> Code | None:
    """The trace as a library call, where one is named."""
    if asked.trace is None:
        if class_column:
            raise InputError(f"--class by {class_column}: needs a trace (--trace) with that column")
        return None
    repair = getattr(asked, "repair", False) or None
    read = call("dmodels:read_trace", asked.trace, repair=repair, class_column=class_column or None, label="trace")
    return call("dmodels.models.traffic:with_prefix_hits", read) if getattr(asked, "prefix_hits", False) else read


def from_scenario(path: Path) -> PlanInputs:
    """The inputs in a scenario file."""
    return read_scenario(path, PlanInputs)
