# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A plan, and how much of it to believe
#
# From five minutes of a conversation trace to a fleet; then what the answer depends on: the load, the promise, and
# the error of the latency model. Run it from the root of the repository.

# %%
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dmodels import SLO, Workload, read_trace
from dmodels.studies.plan import plan, question, sensitivity, verify

ROOT = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "examples" / "data").is_dir())
traffic = Workload.from_trace(read_trace(ROOT / "examples" / "data" / "azure_conv_5min.csv"), rate_rps=20.0)

# %% [markdown]
# ## The question and the answer

# %%
promise = SLO(ttft_s=2.0, tpot_s=0.08, percentile=0.99)
asked = question("llama-3.1-70b", ["h100_sxm"], traffic, promise, tp=(4, 8))
answer = plan(asked)
for option in answer.kinds:
    print(
        f"{option.name:28s} {option.gpus:4d} GPUs ({option.gpus_low:.0f} to {option.gpus_high:.0f})"
        f"  {option.usd_per_hour:8.2f} USD/h"
    )

# %% [markdown]
# The interval in brackets repeats the sizing with step times at both ends of their 80 % interval. Designs whose
# intervals overlap cannot be told apart by this model: take the one that is simplest to run.

# %%
print("cannot be told from the best:", [other.name for other in answer.indistinguishable()])

# %% [markdown]
# ## What moves the cost

# %%
changes = sensitivity(answer)
for change in changes:
    print(f"{change.what} x {change.factor:g}: {change.usd_per_hour:.2f} USD/h, {change.name}")

# %% [markdown]
# ## Cost against load
#
# A fleet grows in steps of whole instances, so the cost per request is a sawtooth: planning just below a step is
# cheap.

# %%
rates = np.arange(5.0, 41.0, 5.0)
costs = []
for rate in rates:
    best = plan(question("llama-3.1-70b", ["h100_sxm"], traffic.at_rate(rate), promise, tp=(4, 8), split=False)).best
    costs.append(best.usd_per_hour)
figure = Figure(figsize=(6, 3.5), layout="constrained")
axes = figure.add_subplot()
axes.step(rates, costs, where="mid")
axes.set(xlabel="requests per second", ylabel="USD per hour", ylim=(0, None))
figure.savefig(Path(os.environ.get("OUT", ".")) / "cost_against_load.png", dpi=100)

# %% [markdown]
# ## Does the plan hold on this traffic?
#
# The whole fleet serves requests one by one. The simulator knows the step times and no queueing formula. Random
# arrivals are what the formulas assume. The trace's own come in bursts: how many instances they take, replays tell.

# %%
trace = read_trace(ROOT / "examples" / "data" / "azure_conv_5min.csv")
ensured = plan(question("llama-3.1-70b", ["h100_sxm"], trace, promise, rate_rps=20.0, tp=(4, 8)))
for told, found in (("random arrivals", verify(answer).replays[0]), ("the trace", ensured.best.replayed)):
    print(f"{told}: {found.gpus} GPUs as {found.name}, {'holds' if found.holds else 'missed'}")
    for one in found.promises:
        print(
            f"  {one.metric:5s} {one.measured_s:.4g} s ({one.low_s:.4g} to {one.high_s:.4g}), closed form"
            f" {one.predicted_s:.4g} s"
        )
assert ensured.best.replayed.holds
