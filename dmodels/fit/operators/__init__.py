"""The laws of operators from measured kernels: read tables, fit cells and what they share, keep constants in a file.

`refit.refit(folder)` does it all; `coefficients.load()` is what ships; both give `Coefficients.at(gpu, engine)`, which
`dmodels.models.operators.layer_s` takes.
"""
