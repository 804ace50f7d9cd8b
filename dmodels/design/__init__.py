"""Design spaces: named axes, one array program over all points, Pareto fronts, optima and sensitivities."""
