"""What would pools by request length save, and at which thresholds? By the published formula and exactly.

Run it: python examples/06_pools_and_thresholds.py
"""

from dmodels import catalog
from dmodels.studies.pools import pool_study

study = pool_study(catalog.workload("azure-paper"), [2048.0, 8192.0, 32768.0], pools_count=3)

for i, tokens in enumerate(study.threshold_tokens):
    ideal, exact = float(study.savings.ideal_frac[i]), float(study.law_frac[i])
    print(
        f"{tokens:6.0f} tokens: formula {ideal:.1%}, exact {exact:.1%},"
        f" with paged memory {float(study.paged_frac[i]):.1%}"
    )
low, high = study.forgiving_tokens
print(f"any threshold from {low:,.0f} to {high:,.0f} keeps 80 % of the best saving")
