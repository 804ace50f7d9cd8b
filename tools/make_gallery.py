"""Draw the gallery of the guide from the examples: docs/gallery.md and its pictures in docs/gallery.

    python tools/make_gallery.py [NAME ...]

Without names everything is drawn, which takes a few minutes. Screenshots need Chromium and playwright; without them
the ones that exist stay.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "gallery"
PLAN = "examples/plan.toml"


@dataclass(frozen=True)
class Entry:
    """One picture: what it shows, in words too, and what draws it."""

    name: str
    title: str
    caption: str
    command: str  # with {out} where the picture goes; "" with `draw`
    draw: Callable[[Path], None] | None = None
    shown: str = ""  # the line that the page shows, where it is not `command`


def main(names: list[str]) -> None:
    """Draw and write the page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for entry in ENTRIES:
        if not names or entry.name in names:
            make(entry, FOLDER / f"{entry.name}.png")
            print(entry.name, flush=True)
    (ROOT / "docs" / "gallery.md").write_text(page(), encoding="utf-8")


def make(entry: Entry, out: Path) -> None:
    """Draw one picture to `out`."""
    if entry.draw is not None:
        entry.draw(out)
        return
    from dmodels.cli import main as dmodels

    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(ROOT):
        code = dmodels(shlex.split(entry.command.format(out=out))[1:])
    if code != 0 or not out.exists():
        raise SystemExit(f"{entry.command}: exit code {code}")


def page() -> str:
    """The page: every picture with its words and the line that draws it."""
    parts = [
        "# Gallery",
        "",
        "Every picture is drawn from a file in `examples/` by the line below it; `python tools/make_gallery.py` draws"
        " them all.",
    ]
    for entry in ENTRIES:
        line = entry.shown or entry.command.format(out=f"{entry.name}.png")
        parts += [
            "",
            f"## {entry.title}",
            "",
            f"![{entry.caption}](gallery/{entry.name}.png)",
            "",
            entry.caption,
            "",
            "```text",
            line,
            "```",
        ]
    return "\n".join(parts) + "\n"


@cache
def _plan():
    from dmodels.cli.plan_inputs import from_scenario
    from dmodels.studies.plan import plan
    from dmodels.studies.plan.memory_use import memory_use
    from dmodels.studies.plan.risks import loads

    answer = plan(from_scenario(ROOT / PLAN).call().run())
    return answer, loads(answer), memory_use(answer)


def _fleets(out: Path) -> None:
    from dmodels.report import plan_figures, style

    answer, _, _ = _plan()
    made, ((left, right),) = style.panels(1, 2)
    plan_figures.cost_front(answer, left)
    plan_figures.throughput_front(answer, right)
    style.save(made, out, dpi=110)


def _load(out: Path) -> None:
    from dmodels.report import plan_figures, style

    _, found, uses = _plan()
    made, ((left, right),) = style.panels(1, 2)
    plan_figures.latency_against_load(found[-1], left)
    plan_figures.occupancy(found[-1], uses[-1], right)
    style.save(made, out, dpi=110)


def _inputs(out: Path) -> None:
    from dmodels.report import plan_figures, style
    from dmodels.studies.plan import sensitivity

    answer, _, uses = _plan()
    made, ((left, right),) = style.panels(1, 2)
    plan_figures.memory_per_gpu(uses, left)
    plan_figures.tornado(answer, sensitivity(answer), right)
    style.save(made, out, dpi=110)


def _screenshot(out: Path, width: int, height: int, explore: bool) -> None:
    """The page as a browser shows it."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        path = None
    if path is None:
        if not out.exists():
            raise SystemExit(f"{out.name} needs Chromium and playwright")
        print(f"{out.name} is kept: no Chromium or no playwright", file=sys.stderr)
        return
    with _served() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": width, "height": height})
        for _ in range(2):  # the first visit compiles
            reply = shown.goto(address + ("/" if explore else "/report"), timeout=300_000)
            if not reply.ok:
                raise SystemExit(f"{out.name}: {reply.text()[-300:]}")
        shown.screenshot(path=out)
        browser.close()


@contextlib.contextmanager
def _served():
    """`dmodels explore` on the plan's scenario, for as long as the block runs."""
    import uvicorn

    from dmodels.cli.explore_server import application, listening
    from dmodels.cli.plan_inputs import from_scenario

    listener = listening(0)
    app = application(from_scenario(ROOT / PLAN).call().run(), PLAN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


_SWEEP = "dmodels sweep examples/sweep.toml --axis tp=1,2,4,8 --axis rate=10:1000:log:48 --plot {plot} --figure {{out}}"
_REPORT = f"dmodels report {PLAN} --out plan.html"

ENTRIES = (
    Entry(
        "explore",
        "A plan that follows sliders",
        "The page of `dmodels explore`: sliders for load, lengths, SLOs and prices on the left, the plan with its "
        "pictures on the right.",
        "",
        partial(_screenshot, width=1280, height=900, explore=True),
        f"dmodels explore {PLAN}",
    ),
    Entry(
        "report",
        "The report of a plan",
        "The head of a report: the answer as five numbers, the promised latencies with their intervals beside the SLO, "
        "what other fleets would cost, and the answer in three sentences.",
        "",
        partial(_screenshot, width=1280, height=1000, explore=False),
        _REPORT,
    ),
    Entry(
        "fleets",
        "What fleets cost, and what they yield",
        "Left: cost of fleets against their TTFT: one-pool fleets as points, hollow where an SLO is missed, other "
        "kinds as broken lines; the full star is the recommended fleet, empty ones are its alternatives. Right: "
        "tokens per second of a GPU against those of a user, with the Pareto front of one-pool fleets.",
        "",
        _fleets,
        _REPORT,
    ),
    Entry(
        "load",
        "Latency and occupancy against load",
        "Left: TTFT and TPOT over their SLOs from idle to saturation, with the operating point and the knee. Right: "
        "requests in flight on one instance, and the slots that bound them.",
        "",
        _load,
        _REPORT,
    ),
    Entry(
        "inputs",
        "Memory, and what moves the answer",
        "Left: where the memory of one GPU goes. Right: cost of the cheapest plan when one input changes.",
        "",
        _inputs,
        _REPORT,
    ),
    Entry(
        "split",
        "Prefill and decode",
        "How many GPUs for prefill: violation rates and marginals with the selfish and the best split; below, "
        "planners in a burst.",
        "dmodels split examples/split.toml --out {out}",
    ),
    Entry(
        "sweep-pareto",
        "A sweep: the Pareto front",
        "Cost against TTFT over tensor parallelism and rate, feasible points only.",
        _SWEEP.format(plot="pareto"),
    ),
    Entry(
        "sweep-heatmap",
        "A sweep: two axes",
        "Cost per million tokens over rate and tensor parallelism; hatched where nothing is feasible.",
        _SWEEP.format(plot="heatmap"),
    ),
    Entry(
        "sweep-curves",
        "A sweep: along one axis",
        "Cost per million tokens against the rate, a line per tensor parallelism; flagged points are hollow.",
        _SWEEP.format(plot="curves"),
    ),
    Entry(
        "place",
        "Tiers of the KV cache",
        "Hit rate by policy and size, time to the first token by tier, what evictions and blocks used once cost, and "
        "what sharing a pool gains.",
        "dmodels place examples/place.toml --out {out}",
    ),
    Entry(
        "poa",
        "The price of anarchy in a router's log",
        "The index over time, by regime.",
        "dmodels poa examples/data/router_log.csv --plot {out}",
    ),
)

if __name__ == "__main__":
    main(sys.argv[1:])
