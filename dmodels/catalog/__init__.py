"""What is known before any measurement: GPUs, models, fabrics and workloads, as data files with source and date.

`gpu("h100")` and `model("llama-3.1-70b")` give records; `gpus()` and `models()` list what there is.
"""

from .fabric_table import fabric, fabrics
from .gpu_table import gpu, gpu_facts, gpus, load_gpus
from .ledger import claim, claims
from .model_table import architecture, model, model_config, model_name, models
from .workloads import totals_cdf, workload, workload_names, workload_source

__all__ = [
    "architecture",
    "claim",
    "claims",
    "fabric",
    "fabrics",
    "gpu",
    "gpu_facts",
    "gpus",
    "load_gpus",
    "model",
    "model_config",
    "model_name",
    "models",
    "totals_cdf",
    "workload",
    "workload_names",
    "workload_source",
]
