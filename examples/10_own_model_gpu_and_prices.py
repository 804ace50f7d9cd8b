"""A model, a GPU and a price that no catalogue has.

Run it: python examples/10_own_model_gpu_and_prices.py
"""

from pathlib import Path

from dmodels import SLO, Workload, read_trace
from dmodels.studies.plan import plan, question

DATA = Path(__file__).parent / "data"
traffic = Workload.from_trace(read_trace(DATA / "azure_conv_5min.csv"), 50.0)

answer = plan(
    question(
        DATA / "our-model" / "config.json",
        ["h100_sxm", "new_gpu"],
        traffic,
        SLO(2.0, 0.08),
        gpu_file=str(DATA / "my_gpus.toml"),
        split=False,
    )
)

for option in answer.by_gpu:
    low, high = option.gpus_low, option.gpus_high
    print(f"{option.decomposition()}: {option.usd_per_hour:.2f} USD/h, {low:.0f} to {high:.0f} GPUs")
    print("  " + option.pools[0].confidence.provenance)
