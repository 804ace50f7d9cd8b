"""`python -m proofs`: run the pages and print how many cases each one tried; `--thorough` tries many times as many.

python -m proofs                        every page, its own number of cases
python -m proofs --thorough             twenty times as many, from fixed seeds
python -m proofs --thorough --seed 7    others than the fixed ones, the same again for the same seed
python -m proofs POA-4.2 NEW-8          these pages only
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from proofs.cases import run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="claims, such as POA-4.2; default: all")
    parser.add_argument("--thorough", action="store_true", help="twenty times as many cases, and the slow tests")
    parser.add_argument("--times", type=int, help="how many times as many cases (default: 1, or 20 if thorough)")
    parser.add_argument("--seed", type=int, help="draw other cases than the fixed ones")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 4), help="processes")
    options = parser.parse_args(argv)
    from proofs.ledger import pages

    known = {page.claim.id.lower(): page for page in pages()}
    if unknown := [name for name in options.ids if name.lower() not in known]:
        parser.error(f"no page of {', '.join(unknown)}")
    chosen = [known[name.lower()] for name in options.ids] or list(known.values())
    times = options.times or (20 if options.thorough else 1)
    start, failed, total, searched, listed = time.perf_counter(), [], 0, 0, 0
    print(f"{'claim':<10} {'verdict':<12} {'tests':>6} {'drawn':>9} {'listed':>9} {'seconds':>8}  page", flush=True)
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(run, page.file, times, options.seed) for page in chosen]
        for page, job in zip(chosen, jobs, strict=True):
            count = job.result()
            cases = sum(count.cases.values())
            total, searched, failed = total + cases, searched + count.searches, failed + count.failed
            listed += count.listed
            print(
                f"{page.claim.id:<10} {page.claim.verdict.name.lower():<12} {count.tests:>6} {cases:>9,} "
                f"{count.listed:>9,} {count.seconds:>8.1f}  {page.file}",
                flush=True,
            )
            if count.failed:
                print(count.output, file=sys.stderr)
    seeds = "fixed seeds" if options.seed is None else f"seed {options.seed}"
    took = time.perf_counter() - start
    print(
        f"{len(chosen)} pages, {total:,} cases drawn by {searched} searches ({seeds}), {listed:,} listed, {took:.0f} s"
    )
    if times == 1:
        print("left out: tests marked slow, which --thorough runs")
    for name in failed:
        print(f"FAILED {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
