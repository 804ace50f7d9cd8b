"""Speed beside named peers (`speed`) and the papers' simulated numbers (`papers`): `python -m benchmarks --list`."""
