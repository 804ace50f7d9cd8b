"""The pictures of a plan as PNG files: cost against TTFT, and latency against load with operating point and knee.

Run it: python examples/04_figures_of_a_plan.py [FOLDER]
"""

import sys
from pathlib import Path

from dmodels import SLO, catalog
from dmodels.report import plan_figures, style
from dmodels.studies.plan import plan, question
from dmodels.studies.plan.risks import loads

chat = catalog.workload("azure-conv", rate_rps=20.0)
answer = plan(question("llama-3.1-70b", ["h100_sxm", "h200_sxm"], chat, SLO(2.0, 0.08)))

both, ((left, right),) = style.panels(1, 2)
plan_figures.cost_front(answer, left)
plan_figures.latency_against_load(loads(answer)[0], right)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
print(style.save(both, folder / "plan.png", dpi=110))
