"""Write docs/accuracy.md from the committed results, and hold the medians to those of the last release.

`python -m tools.make_accuracy` writes the page; `--check` writes nothing. Exit code 1 where a median is more than two
points worse than the last released one, or where the page is not what would be written. `--release VERSION` takes
today's figures as the released ones; `--freeze FOLDER` hashes the cohorts that lie there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tools.accuracy_figures import RESULTS, ROOT, SECTIONS, Figure, figures, remarks

PAGE = ROOT / "docs" / "accuracy.md"
RELEASED = RESULTS / "released.json"
COHORTS = RESULTS / "cohorts.json"
#: A median may be so much worse than the released one.
MOST_WORSE = 0.02
#: Files of measurements that the comparisons read, under the folder of shared data.
FILES = (
    "silicon_fit.csv",
    "throughput_trtllm.csv",
    "servers/rtx_pro_6000_llama-3.1-8b/requests.jsonl",
    "mlperf/v5.1_server_h200_mi300x.csv",
    "mlperf/lengths_llama2-70b-99.csv",
    "mlperf/lengths_llama3-1-405b.csv",
    "mlperf/lengths_llama3-1-8b-datacenter.csv",
    "azure_2023_code.csv",
    "azure_2023_conv.csv",
    "mooncake_conversation.jsonl",
)

HEAD = """# Accuracy

What dmodels says beside what was measured, and where the comparison ends. Every figure is read from the committed files
of `benchmarks/results`; `python -m tools.make_accuracy` makes this page from them, and a release is held back where a
median is more than 2 points worse than the released one. Errors are absolute and relative to the measured value.
"""


def worse(now: list[Figure], released: dict[str, float]) -> list[str]:
    """The comparisons whose median is more than `MOST_WORSE` above the released one, or that are gone, in words."""
    today = {figure.key: figure.median_frac for figure in now}
    found = [
        f"{key}: released with a median of {old:.1%}, not measured now"
        for key, old in released.items()
        if key not in today
    ]
    return found + [
        f"{key}: median {today[key]:.1%}, released with {old:.1%}"
        for key, old in released.items()
        if key in today and not today[key] <= old + MOST_WORSE
    ]


def page(now: list[Figure], released: dict[str, Any], cohorts: dict[str, Any]) -> str:
    """The whole page."""
    parts = [HEAD, f"Released figures: {released.get('version', 'none')}.\n" if released else ""]
    for name, section in SECTIONS.items():
        own = [figure for figure in now if figure.section == name]
        parts.append(f"## {name}\n\n{section.protocol}\n")
        if own:
            parts.append(_table(own, released.get("medians", {})))
            parts.append(said + "\n" if (said := remarks(section)) else "")
            parts.append(f"From `{section.file}.jsonl`, commit {own[0].commit}.\n")
        else:
            parts.append(f"There is no `benchmarks/results/{section.file}.jsonl` yet: nothing is claimed.\n")
        parts.append(f"**What these comparisons cannot show.** {section.cannot_show}\n")
    parts.append("## Cohorts\n\nWhat was compared with, frozen by SHA-256: other bytes are another cohort.\n")
    rows = [f"| `{name}` | {one['rows']:,} | `{one['sha256'][:16]}` |" for name, one in cohorts.items()]
    parts.append("\n".join(["| file | lines | SHA-256 begins |", "|---|---:|---|", *rows]) + "\n")
    return "\n".join(part for part in parts if part)


def _table(own: list[Figure], medians: dict[str, float]) -> str:
    head = "| comparison | values | median | P90 | released median | in the 80 % interval |\n|---|" + 5 * "---:|"
    share = lambda x: "" if x is None else f"{x:.1%}"
    rows = [
        f"| {f.name} | {f.count:,} | {share(f.median_frac)} | {share(f.p90_frac)} | {share(medians.get(f.key))} "
        f"| {share(f.covered_frac)} |"
        for f in own
    ]
    return "\n".join([head, *rows]) + "\n"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def freeze(folder: Path) -> dict[str, Any]:
    """Hash and lines of every cohort in a folder."""
    found = {}
    for name in FILES:
        content = (folder / name).read_bytes()
        found[name] = {"sha256": hashlib.sha256(content).hexdigest(), "rows": content.count(b"\n")}
    return found


def main(asked: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.make_accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--release", metavar="VERSION", help="take today's figures as the released ones")
    parser.add_argument("--freeze", metavar="FOLDER", type=Path, help="hash the cohorts in this folder")
    options = parser.parse_args(asked)
    now = figures()
    if options.freeze:
        COHORTS.write_text(json.dumps(freeze(options.freeze), indent=1) + "\n", encoding="utf-8")
    if options.release:
        medians = {figure.key: round(figure.median_frac, 6) for figure in now}
        document = {"version": options.release, "medians": medians}
        RELEASED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    released = _read(RELEASED)
    text = page(now, released, _read(COHORTS))
    problems = worse(now, released.get("medians", {}))
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        problems.append(f"{PAGE.relative_to(ROOT)} is not what the results say: run python -m tools.make_accuracy")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
