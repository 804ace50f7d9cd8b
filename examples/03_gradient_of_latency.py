"""Which input moves the TPOT most? Elasticities of one instance's latency by automatic differentiation.

Run it: python examples/03_gradient_of_latency.py
"""

import jax

from dmodels import SLO, Parallel, catalog
from dmodels.core.records import float64
from dmodels.models.instance import Roofline, operate
from dmodels.models.latency import Efficiency
from dmodels.models.traffic import requests_between

MODEL, GPU = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm")
REQUESTS = requests_between(catalog.workload("azure-conv"))


def tpot_p99_s(inputs):
    """P99 of TPOT on one tp8 instance at `rate_rps`, with HBM at `hbm_bytes_per_s`."""
    gpu = GPU.replace(hbm_bytes_per_s=inputs["hbm_bytes_per_s"])
    steps = Roofline(MODEL, gpu, Parallel(tp=8.0), REQUESTS, Efficiency())
    return operate(steps, REQUESTS, inputs["rate_rps"], 256.0, SLO(2.0, 0.08)).tpot_s


@float64
def main():
    """Print value and elasticities."""
    at = {"rate_rps": 4.0, "hbm_bytes_per_s": 3.35e12}
    value, slopes = jax.value_and_grad(tpot_p99_s)(at)
    print(f"TPOT P99 {1e3 * float(value):.1f} ms")
    for name, x in at.items():
        print(f"1 % more {name}: {float(slopes[name]) * x / float(value):+.2f} % TPOT")


main()
