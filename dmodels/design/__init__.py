"""Design spaces: named axes, one array program over all points, Pareto fronts, optima and sensitivities.

Commands sweep and select (`space`, `select`); `optimize` and `sensitivity` are open to callers, and the reference shows
them.
"""
