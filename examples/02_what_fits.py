"""How many sequences fit on one instance? Memory formulas over a small catalogue, by name.

Run it: python examples/02_what_fits.py
"""

from dmodels import catalog, concurrent_sequences
from dmodels.design.axes import choice, grid
from dmodels.design.space import sweep

ds = sweep(
    concurrent_sequences,
    model=choice({name: catalog.model(name) for name in ("llama-3.1-70b", "qwen3-235b-a22b")}),
    gpu=choice({name: catalog.gpu(name) for name in ("h100_sxm", "mi300x")}),
    context_tokens=grid(8192, 65536),
    tp=8,
)
print(ds.slots_count.to_series().astype(int).to_string())
assert ds.slots_count.sel(model="llama-3.1-70b", gpu="mi300x", context_tokens=8192) > ds.slots_count.sel(
    model="llama-3.1-70b", gpu="h100_sxm", context_tokens=8192
)
