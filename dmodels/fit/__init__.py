"""From measurements to calibrated step times with intervals that hold on machines never seen.

`rows` reads measured serving points; `refit` is what `dmodels fit` runs; `calibration` holds the effects that ship and
`predict` uses them, with intervals from `conformal`. `silicon`, `hierarchy` and `descent` are the model and its
optimiser, `deployed` what single deployments add to it, `protocols` what is left out to judge it.

No command reaches `operators` (laws of single kernels, fitted to measured ones; `python -m benchmarks` prints their
errors), nor `curves` and `knee` (laws through a load sweep, and where it saturates): the guide's page on your own
inputs shows them.
"""
