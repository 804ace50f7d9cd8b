"""The table of shares, `proofs/MUTANTS.md`, made from the results so far."""

from __future__ import annotations

from dataclasses import dataclass

from .changes import Mutant
from .check import SPEND_S, Work
from .equivalent import reason
from .targets import TARGETS

#: Files of facts that were written because changes had survived.
AFTERWARDS = "_facts.py"


@dataclass(frozen=True)
class Row:
    """One module: its changes, those that were run, those caught, by which kind of test first, and equivalent ones."""

    module: str
    changes: int
    ran: int
    caught: int
    by_page: int
    by_fact: int
    survived: list[Mutant]
    equivalent: list[tuple[Mutant, str]]

    @property
    def share(self) -> float:
        """Caught over run, equivalent ones left out; NaN if none was run."""
        counted = self.ran - len(self.equivalent)
        return self.caught / counted if counted else float("nan")


def rows(work: Work) -> list[Row]:
    """One row per target that has results for its source as it is now."""
    found = []
    for module in TARGETS:
        everything = work.mutants(module)
        ran = [(m, work.results[m.key]["by"]) for m in everything if m.key in work.results]
        if not ran:
            continue
        alive = [m for m, by in ran if not by]
        same = [(m, why) for m in alive if (why := reason(m))]
        found.append(
            Row(
                module,
                len(everything),
                len(ran),
                len(ran) - len(alive),
                sum(by.startswith("proofs/") for _, by in ran),
                sum(by.split("::")[0].endswith(AFTERWARDS) for _, by in ran),
                [m for m in alive if not reason(m)],
                same,
            )
        )
    return found


def markdown(found: list[Row]) -> str:
    """The table to read."""
    total = lambda name: sum(getattr(row, name) for row in found)
    same = sum(len(row.equivalent) for row in found)
    share = total("caught") / max(total("ran") - same, 1)
    missing = [target for target in TARGETS if target not in {row.module for row in found}]
    lines = [
        "# Mutation check",
        "",
        "Made by `python -m proofs.mutants` (`make mutants`). Each change is of one sign, operator, inequality, "
        "constant, exponent or choice of one shipped formula; the tests that enter this formula then run, first those "
        "that compile nothing, then those that catch most per second, up to the first that fails or until "
        f"{SPEND_S:g} CPU-seconds are spent. Changes that compute the same are listed with the reason, and not "
        "counted.",
        "",
        f"**{total('caught'):,} of {total('ran') - same:,} changes caught: {share:.1%}.** "
        f"{total('ran'):,} of the {total('changes'):,} possible changes were run (all of a module, or every n-th), "
        f"{same} of them compute the same.",
        "",
        f"Changes that nothing noticed at first were answered by facts: {total('by_fact'):,} of those caught are "
        f"noticed first by a file `*{AFTERWARDS}`, written afterwards. (Facts are cheap and so are asked first: others "
        "might have noticed some of these too.)",
        *(["", f"Not run yet: {', '.join(missing)}."] if missing else []),
        "",
        "| module | changes | run | caught | by a page of proofs/ | by a fact afterwards | equivalent | share |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {r.module} | {r.changes} | {r.ran} | {r.caught} | {r.by_page} | {r.by_fact} | {len(r.equivalent)} "
            f"| {r.share:.1%} |"
            for r in found
        ),
        "",
        "## Not caught",
        "",
        *(f"- {_text(m)}" for row in found for m in row.survived),
        "",
        "## The same by another formula",
        "",
        *(f"- {_text(m)}: {why}" for row in found for m, why in row.equivalent),
    ]
    return "\n".join(lines) + "\n"


def write(work: Work) -> list[float]:
    """Write the file, print the table, return the shares."""
    from dmodels.cli.render import write_text

    found = rows(work)
    path = write_text(work.root / "proofs" / "MUTANTS.md", markdown(found))
    for row in found:
        print(f"{row.module:<32} {row.caught:>5} of {row.ran - len(row.equivalent):>5}  {row.share:7.1%}")
    print(path.relative_to(work.root))
    return [row.share for row in found]


def _text(m: Mutant) -> str:
    return f"`{m.module}.{m.function}` line {m.line}: `{m.before}` to `{m.after}`"
