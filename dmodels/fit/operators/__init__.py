"""The laws of operators from measured kernels: read tables, fit cells and what they share, keep constants in a file.

`refit.refit(folder)` does it all; `coefficients.load(path)` reads what was written. Both give `Coefficients.at(gpu,
engine)`, which `dmodels.models.operators.layer_s` takes. `dmodels fit operators` is the command; the constants that the
package comes with are in `fit/data/operators.json`, and `dmodels.fit.kernels` gives them to the calibration.
"""
