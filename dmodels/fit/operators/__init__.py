"""The laws of operators from measured kernels: read tables, fit cells and what they share, keep constants in a file.

`refit.refit(folder)` does it all; `coefficients.load(path)` reads what was written. Both give `Coefficients.at(gpu,
engine)`, which `dmodels.models.operators.layer_s` takes. No command uses this room yet, and no constants are shipped.
"""
