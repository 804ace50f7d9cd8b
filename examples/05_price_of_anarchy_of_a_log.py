"""Does my router waste anything? The index of a request log, window by window, and what drives it.

Run it: python examples/05_price_of_anarchy_of_a_log.py
"""

from pathlib import Path

from dmodels.studies.router_log import analyse

found = analyse(Path(__file__).parent / "data" / "router_log.csv", window=128, step=256, baseline_s=0.055)

names = ("below", "transition", "saturated")
for i, end in enumerate(found.windows.end_s):
    print(
        f"{end:5.1f} s  PoA-hat {found.windows.index.poa_hat[i]:5.1f}"
        f" = routing {found.windows.routing[i]:.2f} x constant {found.windows.constant[i]:.2f}"
        f" x queueing {found.windows.queueing[i]:5.2f}  {names[found.regime[i]]}"
    )
