"""`python -m proofs.mutants`: change the shipped formulas one at a time and print the share that a check notices.

python -m proofs.mutants                        all targets (hours on one core; results are kept, so it can stop)
python -m proofs.mutants models/kv --every 5    every fifth change of one module
python -m proofs.mutants --survivors            once more those that nothing noticed, with tests written since
python -m proofs.mutants --table                only write proofs/MUTANTS.md from the results so far
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="such as models/kv; default: all targets")
    parser.add_argument("--every", type=int, default=1, help="only every n-th change of a module")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then; call again to go on")
    parser.add_argument("--survivors", action="store_true", help="run again what nothing noticed")
    parser.add_argument("--table", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()

    from . import check, table
    from .targets import TARGETS

    if unknown := set(options.modules) - set(TARGETS):
        parser.error(f"no target: {', '.join(sorted(unknown))}; targets are {', '.join(TARGETS)}")
    work = check.Work.open(Path(__file__).resolve().parents[2])
    if not options.table:
        until = time.monotonic() + options.seconds
        check.check(work, options.modules or TARGETS, options.every, until, options.survivors)
    shares = table.write(work)
    return 0 if all(share >= 0.95 for share in shares) else 1


if __name__ == "__main__":
    sys.exit(main())
