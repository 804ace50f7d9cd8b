"""GPUs of the user's own file are planned like those of the catalogue, and are said to be unmeasured."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels import SLO, Workload
from dmodels.core.errors import InputError
from dmodels.fit.calibration import efficiency_for
from dmodels.studies.plan import plan, question

OURS = """
[our_gpu]
memory_bytes = "79.18 GiB"
hbm_bytes_per_s = "3.35 TB/s"
peak_flop_per_s = "989.4 TFLOP/s"
nvlink_bytes_per_s_oneway = "450 GB/s"
price_usd_per_hour = 1.00
"""


def test_a_gpu_that_no_catalogue_has_is_planned(tmp_path):
    file = tmp_path / "gpus.toml"
    file.write_text(OURS)
    asked = question(
        "llama-3.1-8b",
        ["our_gpu", "h100_sxm"],
        Workload.fixed(1000.0, 100.0, 4.0),
        SLO(2.0, 0.08),
        gpu_file=str(file),
        tp=(1,),
        split=False,
    )
    best = plan(asked).best
    assert best.pools[0].layout.gpu == "our_gpu"  # the hardware of an H100 at less than half its price
    assert "not measured" in best.pools[0].confidence.provenance
    low, high = best.pools[0].confidence.tpot
    assert low < 1 < high


def test_a_gpu_without_a_price_is_refused(tmp_path):
    """A file may leave the price out; among fleets that cost nothing, none would be the cheapest."""
    file = tmp_path / "gpus.toml"
    file.write_text(OURS.partition("price")[0])
    asked = ("llama-3.1-8b", ["our_gpu"], Workload.fixed(1000.0, 100.0, 4.0), SLO(2.0, 0.08))
    with pytest.raises(InputError, match="price of our_gpu = 0"):
        question(*asked, gpu_file=str(file))
    assert question(*asked, gpu_file=str(file), prices_usd_per_hour={"our_gpu": 1.0}).gpus["our_gpu"]


def test_a_gpu_without_a_name_has_what_all_gpus_share():
    shared = efficiency_for("", "vllm", "bf16")
    assert np.isfinite([float(shared.hbm_frac), float(shared.flop_frac)]).all()
    assert float(shared.hbm_frac) != float(efficiency_for("h100_sxm", "vllm", "bf16").hbm_frac)
