"""Simulators, request by request, that share no formula with the closed forms that they check."""
