"""One instance at its maximum throughput, and where the milliseconds of a step go, operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from dmodels.report.text import ms, share, table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .schema import Degree, FileName, Table, flag

Tokens = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StepAsked(Table):
    """The instance and its requests."""

    model: str = flag(..., "catalogue name, Hugging Face id, or path of a config.json")
    gpu: str = flag(..., "GPU, like h100_sxm (`dmodels catalog gpus` lists them)")
    tp: Degree = flag(1, "tensor parallelism")
    dp: Degree = flag(1, "attention data parallelism")
    ep: Degree = flag(1, "expert parallelism, over the tp * dp GPUs")
    input_tokens: Tokens = flag(2000, "prompt tokens of a request, in the mean", "--input")
    output_tokens: Tokens = flag(500, "answer tokens of a request, in the mean", "--output")
    concurrency: Tokens | None = flag(None, "requests in flight; default: those of the maximum throughput")
    backend: str = flag("vllm", "serving engine: vllm, sglang or trtllm")
    weight_dtype: str | None = flag(None, "bf16, fp8, fp4, int4, ...; default: as published")
    kv_dtype: str | None = flag(None, "bf16, fp8 or fp4; default: as published")
    gpu_file: FileName | None = flag(None, "your own GPUs and prices: CSV, TOML, JSON or YAML")
    calibration: FileName | None = flag(None, "a calibration written by `dmodels fit --out`")

    def call(self) -> Code:
        """The library call."""
        from dmodels import catalog
        from dmodels.core.errors import unknown
        from dmodels.studies.plan.calibration import BACKENDS

        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        model = call("dmodels:catalog.model", self.model)
        for kind, dtype in (("weight", self.weight_dtype), ("kv", self.kv_dtype)):
            model = call(f"dmodels.models.memory:with_{kind}_dtype", model, dtype.lower()) if dtype else model
        known = catalog.gpu_facts(self.gpu, self.gpu_file)["name"]
        return call(
            "dmodels.studies.step:step_times",
            model,
            call("dmodels:catalog.gpu", self.gpu, self.gpu_file),
            call("dmodels:Parallel", tp=self.tp, dp=self.dp, ep=self.ep),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            concurrency=self.concurrency,
            name=catalog.model_name(self.model),
            architecture=catalog.architecture(self.model),
            gpu_name=known if known in catalog.gpus() else "",
            backend=self.backend,
            effects=self.calibration and call("dmodels.fit.calibration:read", self.calibration),
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked, by the names that the catalogue has for it."""
        from dmodels import catalog

        return self.model_dump() | {
            "model": catalog.model_name(self.model),
            "gpu": catalog.gpu_facts(self.gpu, self.gpu_file)["name"],
            "parallel": f"tp{self.tp}pp1dp{self.dp}ep{self.ep}",
        }


Picture = Annotated[Path | None, typer.Option(help="write the step as a figure to this .png, .svg or .pdf file")]


@asks(StepAsked)
def command(asked: StepAsked, form: Form, out: Picture = None) -> int:
    check_output("out", out, ".png", ".svg", ".pdf")
    return form.give(
        asked.call(),
        lambda answer: asked.inputs(),
        lambda answer: answer.to_dict(),
        lambda answer: _show(asked.inputs(), answer),
        feasible=lambda answer: answer.fits,
        write=lambda answer: _draw(asked.inputs(), answer, out),
    )


def _draw(inputs: dict[str, Any], answer: Any, out: Path | None) -> None:
    if out is None or not answer.fits:
        return
    from dmodels.report.step_figures import figure
    from dmodels.report.style import save

    save(figure(answer, f"{inputs['model']} on {inputs['gpu']} ({inputs['parallel']})"), out)


def _show(inputs: dict[str, Any], answer: Any) -> None:
    where = f"{inputs['model']} on {inputs['gpu']} ({inputs['parallel']}, {inputs['backend']})"
    if not answer.fits:
        render.say([f"Nothing fits: {where} holds no request of this length; `dmodels size` says what would."])
        return
    low, high = answer.tpot_80
    title = f"{where}: a mean step takes {ms(answer.step_s)} ms"
    columns = {
        "operator": lambda o: o.name,
        "ms": lambda o: 1e3 * o.seconds,
        "of the step": lambda o: share(o.share_frac),
        "GB": lambda o: o.bytes / 1e9,
        "TFLOP": lambda o: o.flop / 1e12,
        "of the roofline": lambda o: share(o.roofline_frac) if o.roofline_frac else "-",
        "binds": lambda o: o.binds,
        "rests on": lambda o: o.source,
    }
    render.show([table(title, answer.operators, columns)])
    said = [
        f"{answer.decode_count:,.0f} requests decode in it; {share(answer.mixed_frac)} of the steps compute prompts, "
        f"{answer.prompt_tokens:,.0f} tokens a step in the mean of all; "
        f"TPOT {ms(answer.tpot_s)} ms (80 %: {ms(answer.tpot_s * low)} to "
        f"{ms(answer.tpot_s * high)} ms), TTFT {ms(answer.ttft_s)} ms in the mean",
        f"at most {answer.tokens_per_s:,.0f} output tokens a second, with {answer.concurrency:,.0f} requests of "
        f"{inputs['input_tokens']:,.0f} + {inputs['output_tokens']:,.0f} tokens in flight",
    ]
    render.say(said)
