"""`dmodels plan --deploy` and `--from-deployment`: files for the tools that start engines, and what these say runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.errors import InputError
from dmodels.core.files import check_writable, write_text
from dmodels.report.text import Table, share

Deploy = Annotated[
    str | None, typer.Option(help="write the plan for a tool that deploys it, into the folder --out: dmodels formats")
]
Running = Annotated[
    list[Path] | None, typer.Option("--from-deployment", help="what runs now: its files or folder, beside the plan")
]


@dataclass(frozen=True)
class Deployments:
    """What was asked of a plan's deployments."""

    form: str | None = None  # to write; None: nothing
    folder: Path | None = None
    running: tuple[Path, ...] = ()

    def check(self) -> None:
        """Mistakes, before anything is computed."""
        from dmodels.formats.deployments import FORMATS

        if self.form is None:
            return
        if self.form not in FORMATS:
            raise InputError(f"--deploy {self.form}: accepted are {', '.join(FORMATS)}")
        if self.folder is None or self.folder.suffix in (".html", ".htm") or self.folder.is_file():
            raise InputError(f"--deploy {self.form}: --out FOLDER is needed with it, not {self.folder}")
        check_writable(self.folder / "any")

    def write(self, found: Any) -> None:
        """The recommended deployment's files; nothing where nothing is feasible."""
        from dmodels.formats.deployments import write_deployment
        from dmodels.studies.plan import serving

        if self.form is None or self.folder is None or found.best is None:
            return
        for name, text in write_deployment(serving(found.best, found.question), self.form).items():
            print(f"{self.form}: {write_text(self.folder / name, text)}", file=sys.stderr)

    def existing(self, asked: Any) -> Any:
        """What runs, as it serves the question's traffic; None: not asked."""
        from dmodels.formats.deployments import read_deployment
        from dmodels.studies.plan.existing import existing

        return existing(asked, read_deployment(self.running)) if self.running else None


def tables(now: Any, best: Any) -> Iterator[Table]:
    """The fleet that runs, and how the plan compares."""
    head = ["pool", "servers", "layout", "GPUs", "USD/h", "requests", "serves [req/s]", "TTFT [ms]", "TPOT [ms]"]
    rows = [
        [
            pool.name,
            pool.instances,
            str(pool.layout),
            pool.gpus,
            round(pool.usd_per_hour, 2),
            share(pool.share_frac),
            float(f"{pool.serves_rps:.4g}"),
            float(f"{1e3 * pool.ttft_s:.4g}"),
            "-" if math.isnan(pool.tpot_s) else float(f"{1e3 * pool.tpot_s:.4g}"),
        ]
        for pool in now.pools
    ]
    yield f"What runs now: {now.name}, in a replay of {now.source}", head, rows
    verdict = "keeps the SLOs" if now.keeps_slo else "does not keep the SLOs"
    against: list[list[Any]] = [
        ["at the rate asked about", verdict],
        ["most that it serves [req/s]", float(f"{now.serves_rps:.4g}")],
    ]
    if now.refused_frac > 0:
        against.append(["requests beyond its context", share(now.refused_frac)])
    if best is not None:
        against.append(["GPUs, now and planned", f"{now.gpus} and {best.gpus}"])
        against.append(["USD/h, now and planned", f"{now.usd_per_hour:,.2f} and {best.usd_per_hour:,.2f}"])
    yield "Now and the plan", ["", ""], against
