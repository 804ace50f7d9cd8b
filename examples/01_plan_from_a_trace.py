"""How many GPUs for this traffic? A plan from a workload, in Python.

Run it: python examples/01_plan_from_a_trace.py
"""

from dmodels import SLO, catalog
from dmodels.studies.plan import command, plan, question

# Lengths of a trace of conversations, 20 requests a second. Your own traffic: read_trace("requests.csv"), and its own
# times decide how many instances it takes.
chat = catalog.workload("azure-conv", rate_rps=20.0)
promise = SLO(ttft_s=2.0, tpot_s=0.08, percentile=0.99)

answer = plan(question("llama-3.1-70b", ["h100_sxm", "h200_sxm"], chat, promise, tp=(4, 8)))

best = answer.best
print(best.decomposition())
print(f"{best.usd_per_hour:.2f} USD/h, between {best.gpus_low:.0f} and {best.gpus_high:.0f} GPUs with 80 % confidence")
for pool in best.pools:
    print(f"{pool.stage.name}: what breaks first is {pool.binding}")
    print(command(pool, answer.question))
for other in answer.kinds:
    print(f"{other.name:24s} {other.gpus:4d} GPUs  {other.usd_per_hour:8.2f} USD/h")
