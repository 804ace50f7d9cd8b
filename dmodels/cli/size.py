"""What fits on one instance: memory by component, sequences at once, and the smallest change if nothing fits."""

from __future__ import annotations

from typing import Annotated

import typer

from dmodels.core.errors import InputError
from dmodels.core.units import GIB

from . import render
from .options import Json, ShowPython


def command(
    model: Annotated[str, typer.Option(help="catalogue name, Hugging Face id, or path of a config.json")],
    gpu: Annotated[str, typer.Option(help="GPU, like h100_sxm (`dmodels catalog gpus` lists them)")],
    tp: Annotated[int, typer.Option(help="tensor parallelism")] = 1,
    pp: Annotated[int, typer.Option(help="pipeline stages")] = 1,
    dp: Annotated[int, typer.Option(help="attention data parallelism: ranks with a KV pool of their own")] = 1,
    ep: Annotated[int, typer.Option(help="expert parallelism, over the tp * dp GPUs of a stage")] = 1,
    context: Annotated[int, typer.Option(help="tokens of one sequence, input and output together")] = 8192,
    workload: Annotated[str | None, typer.Option(help="a bundled workload: sequences of its mix of lengths")] = None,
    weight_dtype: Annotated[str | None, typer.Option(help="bf16, fp8, fp4, int4, ...; default: as published")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="bf16, fp8 or fp4; default: as published")] = None,
    utilization: Annotated[float, typer.Option(help="share of GPU memory the engine may use")] = 0.9,
    block_tokens: Annotated[int, typer.Option(help="tokens per KV block")] = 16,
    batched_tokens: Annotated[int, typer.Option(help="most tokens of one iteration (max_num_batched_tokens)")] = 8192,
    gpu_file: Annotated[str | None, typer.Option(help="your own GPUs and prices: CSV, TOML, JSON or YAML")] = None,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    _check(tp=tp, pp=pp, dp=dp, ep=ep, context=context, block_tokens=block_tokens, batched_tokens=batched_tokens)
    if not 0 < utilization <= 1:
        raise InputError(f"--utilization {utilization:g}: a number above 0 and at most 1 is accepted")
    if show_python:
        print(_python(**{k: v for k, v in locals().items() if k not in ("json", "show_python")}))
        return 0
    from dmodels import Parallel, catalog
    from dmodels.models.memory import with_kv_dtype, with_weight_dtype
    from dmodels.studies.size import size

    record = catalog.model(model)
    if weight_dtype:
        record = with_weight_dtype(record, weight_dtype)
    if kv_dtype:
        record = with_kv_dtype(record, kv_dtype)
    traffic = catalog.workload(workload) if workload else None
    answer = size(
        record,
        catalog.gpu(gpu, gpu_file),
        Parallel(tp, pp, dp, ep),
        context,
        traffic,
        utilization,
        block_tokens,
        batched_tokens,
    )
    inputs = {
        "model": catalog.model_name(model),
        "gpu": catalog.gpu_facts(gpu, gpu_file)["name"],
        "parallel": f"tp{tp}pp{pp}dp{dp}ep{ep}",
        "context_tokens": context,
        "workload": workload,
        "weight_dtype": weight_dtype or "as published",
        "kv_dtype": kv_dtype or "as published",
        "utilization_frac": utilization,
        "block_tokens": block_tokens,
        "batched_tokens": batched_tokens,
    }
    if json:
        print(render.as_json("size", inputs, _result(answer)))
    else:
        _show(inputs, answer)
    return 0 if answer.fits else 1


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: a whole number of at least 1 is accepted")


def _result(answer) -> dict:
    from dmodels.core.flags import describe

    s, w = answer.slots, answer.weights
    return {
        "fits": answer.fits,
        "reasons": describe(int(s.flags)),
        "sequences_per_instance_count": float(s.slots_count),
        "instance_gpus": float(s.gpus),
        "binds": answer.binds,
        "longest_context_tokens": answer.longest_context_tokens,
        "per_gpu": {
            "weight_bytes": float(s.weight_bytes),
            "embedding_weight_bytes": float(w.embedding_bytes),
            "attention_weight_bytes": float(w.attention_bytes),
            "dense_weight_bytes": float(w.dense_bytes),
            "expert_weight_bytes": float(w.expert_bytes),
            "activation_bytes": float(s.activation_bytes),
            "runtime_bytes": float(s.runtime_bytes),
            "kv_budget_bytes": float(s.budget_bytes),
            "kv_bytes_per_token": float(s.kv_bytes_per_token),
            "kv_sequence_bytes": float(s.sequence_bytes),
            "kv_free_bytes": float(s.free_bytes),
        },
        "mixed_lengths": None if answer.mixed is None else answer.mixed._asdict(),
        "have_bytes": answer.have_bytes,
        "need_bytes": answer.need_bytes,
        "fixes": [fix._asdict() for fix in answer.fixes],
    }


def _show(inputs: dict, answer) -> None:
    s, w = answer.slots, answer.weights
    gpus = int(s.gpus)
    render.print_table(
        f"{inputs['model']} on {gpus} x {inputs['gpu']} ({inputs['parallel']}): memory of the fullest GPU",
        ["", "GiB", "how sure"],
        [
            [label, float(value) / GIB, sure]
            for label, value, sure in (
                ("embedding and head", w.embedding_bytes, "exact"),
                ("attention", w.attention_bytes, "exact"),
                ("dense FFNs, shared experts, routers", w.dense_bytes, "exact"),
                ("routed experts", w.expert_bytes, "exact"),
                ("weights of unknown split", w.unsplit_bytes, "as given"),
                ("activations", s.activation_bytes, "assumed, within a factor of 2"),
                ("driver and communicators", s.runtime_bytes, "assumed, within 0.7 GiB"),
                ("left for the KV cache", s.budget_bytes, "the rest of the usable memory"),
            )
            if float(value) != 0
        ],
    )
    if not answer.fits:
        print(f"Nothing fits: {answer.binds}.")
        print(f"  have  {answer.have_bytes / GIB:,.2f} GiB of usable memory per GPU")
        print(f"  need  {answer.need_bytes / GIB:,.2f} GiB with one sequence of {inputs['context_tokens']:,} tokens")
        for fix in answer.fixes:
            print(f"  fits with {fix.change}: {fix.slots_count:,} at once")
        if not answer.fixes:
            print("  no single change of precision, parallelism or context makes it fit")
        return
    each = float(s.sequence_bytes) / 2**20
    length = inputs["context_tokens"]
    print(f"{int(s.slots_count):,} sequences of {length:,} tokens at once per instance of {gpus} GPUs")
    print(f"  each {each:,.1f} MiB per GPU; {float(s.kv_bytes_per_token):,.0f} bytes per token and GPU")
    print(f"  what limits: {answer.binds}; a single sequence could have {answer.longest_context_tokens:,} tokens")
    if answer.mixed is not None:
        m, mean = answer.mixed, answer.mixed.mean_bytes / 2**20
        print(f"{m.slots_count:,} running sequences of {inputs['workload']} fit with {m.probability:.0%} probability")
        print(f"  {mean:,.1f} MiB per GPU each on average; normal law with skewness ({m.certain_count:,} by Bernstein)")
    if int(s.flags):
        from dmodels.core.flags import describe

        print(f"  note: {describe(int(s.flags))} (the config's context is shorter)")


def _python(**a) -> str:
    model = f"catalog.model({a['model']!r})"
    if a["weight_dtype"]:
        model = f"with_weight_dtype({model}, {a['weight_dtype']!r})"
    if a["kv_dtype"]:
        model = f"with_kv_dtype({model}, {a['kv_dtype']!r})"
    file = f", {a['gpu_file']!r}" if a["gpu_file"] else ""
    traffic = f", catalog.workload({a['workload']!r})" if a["workload"] else ""
    return "\n".join(
        [
            "from dmodels import Parallel, catalog",
            "from dmodels.models.memory import with_kv_dtype, with_weight_dtype",
            "from dmodels.studies.size import size",
            "",
            f"size({model}, catalog.gpu({a['gpu']!r}{file}),",
            f"     Parallel(tp={a['tp']}, pp={a['pp']}, dp={a['dp']}, ep={a['ep']}), {a['context']}{traffic},",
            f"     utilization={a['utilization']}, block_tokens={a['block_tokens']}, "
            f"batched_tokens={a['batched_tokens']})",
        ]
    )
