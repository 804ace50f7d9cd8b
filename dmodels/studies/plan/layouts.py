"""Which instances are worth asking about: GPU type x parallelism x precision, as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.precision import Precision
from dmodels.core.records import stack
from dmodels.models.memory import out_of_domain, with_kv_dtype, with_weight_dtype

from .designs import Instances, Layout


def layouts(
    model: Model,
    gpus: dict[str, GPU],
    tp: Iterable[int] = (1, 2, 4, 8),
    pp: Iterable[int] = (1,),
    weights: Sequence[str] = (Precision.AS_PUBLISHED,),
    kv: Sequence[str] = (Precision.AS_PUBLISHED,),
    wide_ep: Iterable[int] = (),
    backend: str = "vllm",
) -> list[Layout]:
    """Layouts that an engine can run: tensor parallel within a node, pipeline stages anywhere, what suits the model.

    A mixture of experts is also laid out with whole experts per GPU: under tensor-parallel attention (ep = tp), under
    data-parallel attention of t GPUs a rank (tp t, dp N/t, ep N), and over `wide_ep` GPUs (dp N, ep N), in whole
    scale-up domains where one is too small. FP8 weights or cache are asked for only where the GPU has FP8 units.
    """
    tp = tuple(tp)
    spread = [(t, p, 1, 1) for t in tp for p in pp]
    if float(model.n_moe_layers) > 0:
        spread += [(t, 1, 1, t) for t in tp if t > 1]
        spread += _attention_ranks(tp, several=backend != "trtllm")
    beyond = [(1, 1, n, n) for n in wide_ep if max(tp) < n <= float(model.n_experts)]
    found = [
        Layout(name, *degrees, weights=w, kv=k)
        for name, gpu in gpus.items()
        for degrees in [*spread, *beyond]
        for w in weights
        for k in kv
        if placed(gpu, degrees[0] * degrees[2], degrees in beyond) and _runs(gpu, w) and _runs(gpu, k)
    ]
    degrees = np.array([(x.tp, x.pp, x.dp, x.ep) for x in found], float).T
    most = max(float(gpu.gpus_per_node) for gpu in gpus.values())
    if min(tp) > most:
        raise InputError(f"tp {sorted(set(tp))}: accepted are up to the {most:.0f} GPUs of a node")
    if not found:
        raise InputError(f"gpus {', '.join(gpus)}: no layout fits a node and has units for the precisions asked for")
    good = ~np.asarray(jax.jit(out_of_domain)(model, Parallel(*degrees)))
    if not good.any():
        heads, layers = float(model.n_q_heads), float(model.n_layers)
        if min(pp) > layers:
            raise InputError(f"pp {sorted(set(pp))}: accepted are up to the model's {layers:.0f} layers")
        raise InputError(f"tp {sorted(set(tp))}: does not divide the model's {heads:.0f} query heads")
    return [layout for layout, ok in zip(found, good, strict=True) if ok]


def _attention_ranks(tp: tuple[int, ...], several: bool) -> Iterator[tuple[int, int, int, int]]:
    """(tp, pp, dp, ep) of data-parallel attention over as many GPUs as `tp` names; `several`: a rank may have more than
    one (TensorRT-LLM's ranks have one)."""
    for gpus in tp:
        for rank in sorted({1, *tp}):
            if rank < gpus and gpus % rank == 0 and (several or rank == 1):
                yield rank, 1, gpus // rank, gpus


def placed(gpu: GPU, gpus: int, beyond: bool) -> bool:
    """Whether a stage of so many GPUs lies within a scale-up domain, or, where it may, fills several joined by NICs."""
    domain = float(gpu.gpus_per_node)
    return gpus <= domain or (beyond and gpus % domain == 0 and float(gpu.nic_bytes_per_s_per_gpu_oneway) > 0)


def instances(models: Sequence[Model], gpus: dict[str, GPU], found: Sequence[Layout], efficiency) -> Instances:
    """Layouts as one batched record. `efficiency(layout) -> Efficiency` gives each its calibrated constants."""
    rows = [
        Instances(model, gpus[x.gpu], Parallel(x.tp, x.pp, x.dp, x.ep), efficiency(x))
        for model, x in zip(models, found, strict=True)
    ]
    return stack(*rows)


def chosen_gpus(names: Sequence[str], file: str | None = None) -> dict[str, GPU]:
    """Catalogue records by their catalogue names, in the order asked for, each once."""
    asked = {catalog.gpu_facts(name, file)["name"]: name for name in names}
    if not asked:
        raise InputError("gpus: none named; accepted is one name or more from `dmodels catalog gpus`")
    return {canonical: catalog.gpu(name, file) for canonical, name in asked.items()}


def in_precision(model: Model, layout: Layout) -> Model:
    """The model as the layout stores it."""
    if layout.weights != Precision.AS_PUBLISHED:
        model = with_weight_dtype(model, layout.weights)
    return model if layout.kv == Precision.AS_PUBLISHED else with_kv_dtype(model, layout.kv)


def _runs(gpu: GPU, dtype: str) -> bool:
    """FP8 and FP4 need units of their own; other formats are widened by the kernels that read them."""
    if dtype == Precision.FP4:
        return float(gpu.peak_fp4_flop_per_s) > 0
    return float(gpu.peak_fp8_flop_per_s) > 0 if dtype.startswith("fp8") else True
