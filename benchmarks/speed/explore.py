"""What lies between a slider and the new text of `dmodels explore`: the answer over loopback against its plan alone.

Every question is a new one, as a slider's is: the server keeps the answers that it has given.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.request import urlopen

from benchmarks.registry import Row, benchmark, interleaved
from dmodels import SLO, catalog
from dmodels.studies.explore import at_rest, turned
from dmodels.studies.plan import Question, plan, question


def asked() -> Question:
    """The question of examples/plan.toml."""
    return question("llama-3.1-70b", ["h100", "h200"], catalog.workload("azure-conv", 20.0), SLO(2.0, 0.08))


@benchmark("starlette", "uvicorn")
def explore_slider(quick: bool) -> Iterator[Row]:
    """Seconds from a slider to the new text, and their ratio to the plan's own time."""
    import uvicorn

    from dmodels.cli.explore_server import LOOPBACK, application, listening
    from dmodels.report.explore_page import answer_fragment, pictures_fragment

    base, rates = asked(), itertools.count(2000)
    listener = listening(0)
    server = uvicorn.Server(uvicorn.Config(application(base, "plan.toml"), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://{LOOPBACK}:{listener.getsockname()[1]}/answer?rate="
    rest, drawn = at_rest(base), plan(base, ensure=False)
    found = interleaved(
        {
            "plan": lambda: plan(turned(base, replace(rest, rate_rps=0.01 * next(rates))), ensure=False),
            "slider to text": lambda: urlopen(f"{address}{0.01 * next(rates):.2f}").read(),
            "words": lambda: answer_fragment(drawn, drawn),
            "pictures": lambda: pictures_fragment(drawn),
        },
        1 if quick else 9,
    )
    server.should_exit = True
    for name, seconds in found.items():
        yield {"what": name, "seconds": seconds, "over_plan": seconds / found["plan"]}
