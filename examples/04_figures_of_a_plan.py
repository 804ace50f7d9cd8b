"""The pictures of a plan as PNG files: cost against TTFT, and latency against load.

Run it: python examples/04_figures_of_a_plan.py [FOLDER]
"""

import sys
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from dmodels import SLO, catalog
from dmodels.report import plan_figures
from dmodels.studies.plan import plan, question

chat = catalog.workload("azure-conv", rate_rps=200.0)
answer = plan(question("llama-3.1-70b", ["h100_sxm", "h200_sxm"], chat, SLO(2.0, 0.08)))

both = Figure(figsize=(11, 4), layout="constrained")
for axes, draw in zip(both.subplots(1, 2), (plan_figures.cost_front, plan_figures.latency_against_load), strict=True):
    axes.grid(True, linewidth=0.4, alpha=0.5)
    partial(draw, answer)(axes)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
both.savefig(folder / "plan.png", dpi=110)
print(folder / "plan.png")
