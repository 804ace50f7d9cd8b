"""What fits on one instance: memory by component, sequences at once, and the smallest change if nothing fits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dmodels.core.units import GIB, counted
from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks
from .schema import Degree, FileName, Table, flag


class SizeAsked(Table):
    """What one instance is sized for."""

    model: str = flag(..., "catalogue name, Hugging Face id, or path of a config.json")
    gpu: str = flag(..., "GPU, like h100_sxm (`dmodels catalog gpus` lists them)")
    tp: Degree = flag(1, "tensor parallelism")
    pp: Degree = flag(1, "pipeline stages")
    dp: Degree = flag(1, "attention data parallelism: ranks with a KV pool of their own")
    ep: Degree = flag(1, "expert parallelism, over the tp * dp GPUs of a stage")
    context_tokens: Degree = flag(8192, "tokens of one sequence, input and output together", "--context")
    workload: str | None = flag(None, "a bundled workload: sequences of its mix of lengths")
    weight_dtype: str | None = flag(None, "bf16, fp8, fp4, int4, ...; default: as published")
    kv_dtype: str | None = flag(None, "bf16, fp8 or fp4; default: as published")
    utilization_frac: Annotated[float, Field(ge=0.01, le=1)] | None = flag(
        None, "share of GPU memory the engine may use; default: the engine's", "--utilization"
    )
    block_tokens: Degree = flag(16, "tokens per KV block")
    batched_tokens: Degree = flag(8192, "most tokens of one iteration (max_num_batched_tokens)")
    max_num_seqs: Degree | None = flag(None, "most sequences at a time, for its sampler; default: the engine's")
    backend: str = flag("vllm", "serving engine, which divides the memory: vllm, sglang or trtllm")
    release: str = flag("", "of the engine, like 0.20: vLLM before 0.15, or not stated, sets more aside to sample")
    gpu_file: FileName | None = flag(None, "your own GPUs and prices: CSV, TOML, JSON or YAML")

    @property
    def layout(self) -> str:
        """The parallelism as one word."""
        return f"tp{self.tp}pp{self.pp}dp{self.dp}ep{self.ep}"

    def call(self) -> Code:
        """The library call."""
        model = call("dmodels:catalog.model", self.model)
        for kind, dtype in (("weight", self.weight_dtype), ("kv", self.kv_dtype)):
            model = call(f"dmodels.models.memory:with_{kind}_dtype", model, dtype.lower()) if dtype else model
        return call(
            "dmodels.studies.size:size",
            model,
            call("dmodels:catalog.gpu", self.gpu, self.gpu_file),
            call("dmodels:Parallel", tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep),
            self.context_tokens,
            call("dmodels:catalog.workload", self.workload) if self.workload else None,
            utilization=self.utilization_frac,
            block_tokens=self.block_tokens,
            batched_tokens=self.batched_tokens,
            max_sequences=self.max_num_seqs,
            backend=self.backend,
            release=self.release,
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked, by the names that the catalogue has for it."""
        from dmodels import Parallel, catalog
        from dmodels.core.precision import Precision
        from dmodels.models.memory import default_sequences, default_utilization, engine_memory

        gpu, memory = catalog.gpu(self.gpu, self.gpu_file), engine_memory(self.backend, self.release)
        degrees = Parallel(self.tp, self.pp, self.dp, self.ep)
        share = self.utilization_frac or float(default_utilization(memory, gpu, degrees, self.batched_tokens))
        return self.model_dump() | {
            "model": catalog.model_name(self.model),
            "gpu": catalog.gpu_facts(self.gpu, self.gpu_file)["name"],
            "parallel": self.layout,
            "weight_dtype": self.weight_dtype or Precision.AS_PUBLISHED,
            "kv_dtype": self.kv_dtype or Precision.AS_PUBLISHED,
            "utilization_frac": share,
            "max_num_seqs": self.max_num_seqs or int(default_sequences(self.backend, gpu)),
        }


@asks(SizeAsked)
def command(asked: SizeAsked, form: Form) -> int:
    return form.give(
        asked.call(),
        lambda answer: asked.inputs(),
        _result,
        lambda answer: _show(asked.inputs(), answer),
        feasible=lambda answer: answer.fits,
    )


WEIGHTS = ("embedding", "attention", "dense", "expert", "prepared")


def _result(answer: Any) -> dict[str, Any]:
    from dmodels.core.flags import describe

    s, w = answer.slots, answer.weights
    return {
        "fits": answer.fits,
        "reasons": describe(int(s.flags)),
        "sequences_per_instance_count": s.slots_count,
        "instance_gpus": s.gpus,
        "binds": answer.binds,
        "longest_context_tokens": answer.longest_context_tokens,
        "per_gpu": {
            **{name: getattr(s, name) for name in ("weight_bytes", "activation_bytes", "runtime_bytes")},
            **{f"{part}_weight_bytes": getattr(w, f"{part}_bytes") for part in WEIGHTS},
            **{f"kv_{name}": getattr(s, name) for name in ("budget_bytes", "sequence_bytes", "free_bytes")},
            "kv_bytes_per_token": s.kv_bytes_per_token,
        },
        "mixed_lengths": answer.mixed,
        "have_bytes": answer.have_bytes,
        "need_bytes": answer.need_bytes,
        "fixes": answer.fixes,
    }


def _show(inputs: dict[str, Any], answer: Any) -> None:
    from dmodels.core.flags import describe

    s, w = answer.slots, answer.weights
    gpus, length = int(s.gpus), inputs["context_tokens"]
    parts = [
        ("embedding and head", w.embedding_bytes, "exact"),
        ("attention", w.attention_bytes, "exact"),
        ("dense FFNs, shared experts, routers", w.dense_bytes, "exact"),
        ("routed experts", w.expert_bytes, "exact"),
        ("weights of unknown split", w.unsplit_bytes, "as given"),
        ("padding and absorbed projections", w.prepared_bytes, "as its kernels store them"),
        ("activations and sampler", s.activation_bytes, "the engine's start-up run, within 20 %"),
        ("driver and communicators", s.runtime_bytes, "median of engine logs, within 1 GiB"),
        ("left for the KV cache", s.budget_bytes, "the rest of the usable memory"),
    ]
    title = f"{inputs['model']} on {gpus} x {inputs['gpu']} ({inputs['parallel']}): memory of the fullest GPU"
    columns = {"": lambda part: part[0], "GiB": lambda part: float(part[1]) / GIB, "how sure": lambda part: part[2]}
    render.show([table(title, [part for part in parts if float(part[1])], columns)])
    if not answer.fits:
        print(f"Nothing fits: {answer.binds}.")
        print(f"  have  {answer.have_bytes / GIB:,.2f} GiB of usable memory per GPU")
        print(f"  need  {answer.need_bytes / GIB:,.2f} GiB with one sequence of {length:,} tokens")
        for fix in answer.fixes:
            print(f"  fits with {fix.change}: {fix.slots_count:,} at once")
        if not answer.fixes:
            print("  no single change of precision, parallelism or context makes it fit")
        return
    print(f"{int(s.slots_count):,} sequences of {length:,} tokens at once per instance of {counted(gpus, 'GPU')}")
    each = float(s.sequence_bytes) / 2**20
    print(f"  each {each:,.1f} MiB per GPU; {float(s.kv_bytes_per_token):,.0f} bytes per token and GPU")
    print(f"  what limits: {answer.binds}; a single sequence could have {answer.longest_context_tokens:,} tokens")
    if answer.mixed is not None:
        m, mean = answer.mixed, answer.mixed.mean_bytes / 2**20
        print(f"{m.slots_count:,} running sequences of {inputs['workload']} fit with {m.probability:.0%} probability")
        print(f"  {mean:,.1f} MiB per GPU each on average; normal law with skewness ({m.certain_count:,} by Bernstein)")
    if int(s.flags):
        print(f"  note: {describe(int(s.flags))} (the config's context is shorter)")
