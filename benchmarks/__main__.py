"""Run benchmarks by name and append what they measure to benchmarks/results.

python -m benchmarks --list
python -m benchmarks assignment transport
python -m benchmarks --quick assignment     # the smallest sizes; nothing is written
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.registry import cases, record, text


def main(asked: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="benchmarks to run")
    parser.add_argument("--list", action="store_true", help="name every benchmark")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes; nothing is written")
    options = parser.parse_args(asked)
    known = cases()
    if options.list or not options.name:
        for case in known.values():
            peers = f" (beside {', '.join(case.peers)})" if case.peers else ""
            print(f"{case.name:26} {case.what}{peers}")
        return 0
    if unknown := sorted(set(options.name) - known.keys()):
        parser.error(f"no benchmark {', '.join(unknown)}; --list names them")
    for name in options.name:
        case, rows = known[name], []
        print(f"{name}: {case.what}")
        try:
            for row in case.run(options.quick):
                rows.append(row)
                print("  " + text(row), flush=True)
        except ModuleNotFoundError as error:
            raise SystemExit(f"{name} needs {error.name}: pip install -e '.[bench]'") from error
        if not options.quick:
            record(name, rows, *case.peers)
            if case.write is not None:
                print(f"  wrote {case.write(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
