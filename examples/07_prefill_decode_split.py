"""Who gets how many GPUs? The selfish split, the best one, and whole workers, for violation rates of one's own.

Run it: python examples/07_prefill_decode_split.py
"""

from dmodels.games.resource import Exponential, Game, Starved, equilibrium, integer_split, social_optimum

# Prefill misses 10 % fewer TTFTs per GPU; decode 25 % fewer ITLs, but starves where prefill cannot feed it.
decode = Starved(Exponential(0.25), Exponential(0.15))
game = Game(Exponential(0.10), decode, budget_gpus=40.0, prefill_worker_gpus=4.0, decode_worker_gpus=4.0)

for name, split in (("equilibrium", equilibrium(game)), ("optimum", social_optimum(game))):
    print(f"{name:12s} {float(split.value.prefill_gpus):5.2f} prefill GPUs, cost {float(split.value.cost):.4f}")
whole = integer_split(game)
print(f"whole workers: {int(whole.value.prefill_instances)} + {int(whole.value.decode_instances)}")
