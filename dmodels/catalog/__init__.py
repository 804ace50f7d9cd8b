"""What is known before any measurement: GPUs, models, fabrics and workloads, as data files with source and date."""

from .workloads import totals_cdf, workload, workload_names, workload_source

__all__ = ["totals_cdf", "workload", "workload_names", "workload_source"]
