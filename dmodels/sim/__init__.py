"""Simulators, request by request, that share no formula with the closed forms that they check.

No command uses `study` (very long runs in bounded memory); a benchmark and the reference do.
"""
