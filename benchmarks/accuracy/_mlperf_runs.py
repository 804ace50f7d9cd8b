"""Public open-loop runs of MLPerf Inference v5.1 (H200 and MI300X): what they served, on what, and how fast.

Facts of MLCommons' published results, by submission id; token lengths of the benchmark's own data. Those of Llama 2
were counted by another tokenizer: prompts and answers are scaled so that answers have the run's tokens per sample.
Answers of Llama 3.1 8B all have the 128 tokens that the benchmark allows. The lengths of Mixtral's data are not known:
Llama 2's prompts stand for them.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels import SLO, Workload
from dmodels.models.instance import Engine
from dmodels.models.traffic import Trace
from dmodels.studies.plan import Question, question

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "mlperf"
FILE = FOLDER / "v5.1_server_h200_mi300x.csv"
#: Benchmark -> (catalogue model, file of lengths, most answer tokens).
MODELS = {
    "llama2-70b": ("llama-2-70b", "llama2-70b-99", 1024),
    "llama3.1-405b": ("llama-3.1-405b", "llama3-1-405b", 2000),
    "llama3.1-8b": ("llama-3.1-8b", "llama3-1-8b-datacenter", 128),
    "mixtral-8x7b": ("mixtral-8x7b", "llama2-70b-99", 1024),
}
#: What such a server is started with: as many requests at once as its memory holds.
SLOTS, STEP_TOKENS, UTILIZATION = 2048, 8192, 0.95


class Run(NamedTuple):
    """A run of one system."""

    id: str
    submitter: str
    benchmark: str
    gpu: str
    engine: str
    gpus: int
    rate_rps: float
    slo: SLO
    tokens: float  # of an answer, in the mean
    measured_s: dict[str, float]  # "ttft_p99", ...
    lengths_known: bool

    @property
    def model(self) -> str:
        """The catalogue's name."""
        return MODELS[self.benchmark][0]

    @property
    def tp(self) -> int:
        """GPUs of an instance, as submissions split these models."""
        return 8 if self.benchmark == "llama3.1-405b" else 1

    def requests(self, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(arrivals, prompts, answers) of so many requests: Poisson at the run's rate."""
        rng, most = np.random.default_rng(seed), MODELS[self.benchmark][2]
        own = _lengths(MODELS[self.benchmark][1])
        prompts, answers = own[rng.integers(0, len(own), count)].T
        longer = self.tokens / own[:, 1].mean()
        if self.benchmark == "llama3.1-8b":
            answers = np.full(count, float(most))
        else:
            for _ in range(8):  # the cap takes from the mean what the others get
                answers = np.clip(answers * self.tokens / answers.mean(), 1.0, most)
        if self.benchmark == "llama2-70b":
            prompts = prompts * longer
        when = np.cumsum(rng.exponential(1.0 / self.rate_rps, count))
        return when, np.maximum(1.0, np.rint(prompts)), np.rint(answers)

    def question(self, times: float = 1.0, **options: Any) -> Question:
        """What a plan is asked at so many times the run's rate."""
        when, prompts, answers = self.requests(3000)
        traffic = Workload.from_trace(Trace("MLPerf", when, prompts, answers), times * self.rate_rps)
        return question(
            self.model,
            [self.gpu],
            traffic,
            self.slo,
            engine=Engine(float(SLOTS), float(STEP_TOKENS)),
            backend=self.engine,
            weights=("fp8",),
            kv=("fp8",),
            split=False,
            thresholds_tokens=(),
            **options,
        )


@lru_cache
def _lengths(name: str) -> np.ndarray:
    return np.loadtxt(FOLDER / f"lengths_{name}.csv", delimiter=",", skiprows=1)


def runs() -> tuple[list[Run], list[str]]:
    """(the runs, ids of systems with several kinds of GPUs, which are left out)."""
    found, mixed = [], []
    for row in csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()):
        if "," in row["accelerator"]:
            mixed.append(row["id"])
            continue
        kind = row["accelerator"]
        gpu = "mi300x" if "MI300X" in kind else "h200_nvl" if "NVL" in kind else "h200_sxm"
        software = row["software"].lower()
        engine = "trtllm" if "tensorrt" in software else "sglang" if "sglang" in software else "vllm"
        benchmark = row["model"].removesuffix("-99.9").removesuffix("-99")
        names = [f"{m}_{p}" for m in ("ttft", "tpot") for p in ("p50", "p90", "p99")]
        found.append(
            Run(
                row["id"],
                row["submitter"],
                benchmark,
                gpu,
                engine,
                gpus=int(row["n_acc"]) * int(row["nodes"]),
                rate_rps=float(row["target_qps"]),
                slo=SLO(1e-3 * float(row["ttft_slo_ms"]), 1e-3 * float(row["tpot_slo_ms"])),
                tokens=float(row["tokens_per_s"]) / float(row["samples_per_s"]),
                measured_s={name: 1e-3 * float(row[_column(name)]) for name in names},
                lengths_known=benchmark != "mixtral-8x7b",
            )
        )
    return found, mixed


def _column(name: str) -> str:
    metric, percentile = name.split("_")
    return f"{metric}_{percentile}_ms"
