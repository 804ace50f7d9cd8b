"""The auditor of what people read: sentences and tables, of the terminal and of the page, against the JSON document."""

from __future__ import annotations

import html
import math
import re
from html.parser import HTMLParser
from typing import Any

from tests.audit.cards import model_card
from tests.audit.findings import Findings, last_digit, number, numbers

Rows = list[dict[str, str]]


def terminal_tables(text: str) -> dict[str, Rows]:
    """Title -> rows of the tables that a terminal shows.

    Cells that were broken over lines are put together; so are the parts of a table that was too wide for one, in which
    rows stand as columns.
    """
    found: dict[str, Rows] = {}
    title, head, rows, between = "", [], [], []
    for line in text.splitlines():
        if line.startswith("┏"):
            title, head, rows, between = " ".join(between) or title, [], [], []
        elif line.startswith("┃"):
            parts = [part.strip() for part in line.strip("┃").split("┃")]
            head = parts if not head else [f"{a} {b}".strip() for a, b in zip(head, parts, strict=True)]
        elif line.startswith("│"):
            cells = [part.strip() for part in line.strip("│").split("│")]
            if cells[0] or not rows:
                rows.append(cells)
            else:
                rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)]
        elif line.startswith("└"):
            if any(row[0] in ("USD/h", "binds") for row in rows):
                rows = [list(column) for column in zip(head, *rows, strict=True)]
                head, rows = rows[0], rows[1:]
            found.setdefault(title, []).extend(dict(zip(head, row, strict=True)) for row in rows)
        elif not line.startswith("┡"):
            between = [*between, line.strip()] if line.strip() else []
    return found


class _Page(HTMLParser):
    """Captions and cells of a page's tables, and its code."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.code: list[str] = []
        self.paragraphs: list[str] = []
        self.at = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "caption":
            self.caption = ""
        elif tag == "tr":
            self.tables.setdefault(self.caption, []).append([])
        elif tag in ("th", "td"):
            self.tables[self.caption][-1].append("")
        elif tag in ("pre", "p"):
            (self.code if tag == "pre" else self.paragraphs).append("")
        if tag in ("caption", "th", "td", "pre", "p"):
            self.at = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.at:
            self.at = ""

    def handle_data(self, data: str) -> None:
        if self.at == "caption":
            self.caption += data
        elif self.at in ("th", "td"):
            self.tables[self.caption][-1][-1] += data
        elif self.at:
            (self.code if self.at == "pre" else self.paragraphs)[-1] += data


def audit_text(document: dict[str, Any], text: str) -> None:
    """Hold what the terminal shows against the document."""
    findings, result = Findings(), document["result"]
    flat = " ".join(text.split())
    for sentence in [*result["summary"], *result["notes"]]:
        findings.hold(" ".join(sentence.split()) in flat, f"not on the terminal: {sentence}")
    _sentences(document, findings)
    if result["recommended"]:
        _tables(document, terminal_tables(text), findings)
        _launches(result["recommended"], text, findings)
        _card(document, terminal_tables(text), findings)
        room = re.search(r"# rate headroom (?:at least )?(\d+)%", text)[1]
        findings.same("headroom", number(f"{room}%"), result["rate_headroom_frac"], most=0.0051)
        points = number(re.search(r"([\d,]+) points evaluated", text)[1])
        findings.same("points", points, result["points_count"])
    findings.end()


def audit_words(document: dict[str, Any]) -> None:
    """Hold the sentences of a document against its numbers."""
    findings = Findings()
    _sentences(document, findings)
    findings.end()


def audit_page(document: dict[str, Any], page: str) -> None:
    """Hold the report against the document."""
    findings, read, best = Findings(), _Page(), document["result"]["recommended"]
    read.feed(page)
    tables = {title: [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] for title, rows in read.tables.items()}
    findings.hold(bool(read.paragraphs), "a page without words")
    for told, caption in re.findall(r'aria-label="([^"]*)".*?<figcaption>(.*?)</figcaption>', page, re.S):
        kinds = ("Scatter plot ", "Line chart", "Bar chart ", "Stacked bars ", "Intervals ", "Bars of ")
        findings.hold(told.startswith(kinds), f"to those who cannot see it, a picture is {told[:60]!r}")
        findings.hold(not caption.startswith(kinds), f"the caption {caption[:60]!r}")
    _whole_page(document, tables, page, read, findings)
    if best:
        _pictures(document["result"], page, findings)
        asked = bool(document["result"]["sensitivity"])
        findings.same("a section on other inputs", "If an input is wrong" in page, asked)
        findings.same("a picture of other inputs", "when one input changes; the dearest" in page, asked)
        _tables(document, tables, findings)
        _launches(best, "\n".join(read.code), findings)
        _router(best["router"], "\n".join(read.code), findings)
        _memory(document, tables, findings)
        _risks(document, tables, " ".join(read.paragraphs), findings)
        if told := re.search(r"one instance less would break (.*?)\.", " ".join(read.paragraphs)):
            several = len(best["pools"]) > 1
            limits = [pool["binding"] + f" ({pool['name']})" * several for pool in best["pools"]]
            findings.same("what an instance less would break, in words", told[1], " and ".join(limits))
    findings.end()


def _whole_page(document: dict[str, Any], tables: dict[str, Rows], page: str, read: _Page, findings: Findings) -> None:
    """The title, the sections that are open and those that are shut, every input, and how many points there are."""
    inputs, result = {k: v for k, v in document["inputs"].items() if k != "asked"}, document["result"]
    title = re.search(r"<title>Capacity plan: (.*), ([\d.,e+]+) req/s</title>", page)
    findings.hold(title is not None, f"no title with a model and a rate in {page[:300]}")
    if title:
        findings.same("the model in the title", title[1], inputs["model"])
        _close("the rate in the title", title[2], inputs["rate_rps"], findings)
    heads = re.findall(r"<section>\n(<details>\n<summary>)?<h2>(.*?)</h2>", page)
    shown = [head for shut, head in heads if not shut]
    fell = "What fell, and why"  # below what several fleets together do, where no one fleet is the answer
    answers = [["What to deploy"]] if result["recommended"] else [[fell], ["What to deploy", fell]]
    findings.hold(shown in answers, f"the sections {shown} are open")
    shut = {head for folded, head in heads if folded}
    always = {"What it rests on", "Inputs and reproduction", "Words"}
    findings.hold(always <= shut, f"of {always} only {shut} are there to be opened")
    given = {row["input"]: row["value"] for row in tables.get("Inputs", [])}
    findings.same("inputs on the page", given.keys(), inputs.keys())
    for name, value in inputs.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            _close(f"{name} on the page", given.get(name, ""), value, findings)
        elif isinstance(value, str):
            findings.same(f"{name} on the page", given.get(name), value)
        elif isinstance(value, dict):
            told = dict(part.split(": ") for part in given.get(name, "").split(", ") if part)
            findings.same(f"{name} on the page", told.keys(), value.keys())
            for key, number_ in value.items():
                _close(f"{name} of {key} on the page", told.get(key, ""), number_, findings)
    points = next((number(text.split()[2]) for text in read.paragraphs if text.endswith(" points evaluated.")), None)
    findings.same("points on the page", points, result["points_count"])
    words = " ".join(" ".join(read.paragraphs).split())
    for note in result["notes"]:
        findings.hold(" ".join(note.split()) in words, f"not on the page: {note}")
    findings.hold(read.code[-1].startswith("dmodels "), f"no command makes the page again: {read.code[-1][:60]!r}")
    ids = re.findall(r'\bid="([^"]+)"', page)
    findings.same("ids that are used twice", sorted({one for one in ids if ids.count(one) > 1}), [])
    rests = {row["number"]: row for row in _titled(tables, "What the numbers rest on")}
    for gpu, price in inputs["price_usd_per_hour"].items():
        said = rests.get(f"price of {gpu}", {"from": ""})["from"]
        findings.same(f"the price of {gpu} that it rests on", said.partition(" USD/h")[0], f"{price:g}")


def _pictures(result: dict[str, Any], page: str, findings: Findings) -> None:
    """What is said of pictures to those who cannot see them."""
    best = result["recommended"]
    names, words = [pool["name"] for pool in best["pools"]], html.unescape(page)
    findings.same("pools in pictures of latency", re.findall(r"Pool '(.*?)': latency", words), names)
    memory = re.search(r"Stacked bars of one GPU's memory\. (.*?)\.\"", words)[1]
    findings.same("pools in the picture of memory", [one.partition(": ")[0] for one in memory.split("; ")], names)
    two = any(one["kind"] == "two pools" for one in [best, *result["alternatives"]])
    findings.hold("Cost of two pools against the threshold" in page or not two, "no picture of thresholds")
    for pool in best["pools"]:
        told = re.search(
            rf"per instance of the pool {pool['name']} against load: (\d+) at the operating point, (\d+) ", page
        )
        findings.same(f"slots of {pool['name']} in a picture", int(told[2]), round(pool["slots_count"]), most=1.0)
        if pool["role"] != "prefill":
            held = pool["decode_count"]
            findings.same(f"in flight in {pool['name']} in a picture", int(told[1]), held, rel=0.02, most=0.51)
    if told := re.search(r"the dearest: (.+?) times ([\d.]+), ([\d,.]+|inf) USD/h", page):
        costs = [math.inf if c["usd_per_hour"] is None else c["usd_per_hour"] for c in result["sensitivity"]]
        findings.same("the dearest change in a picture", number(told[3].rstrip(".")), max(costs), rel=1e-3)
        first = result["sensitivity"][costs.index(max(costs))]
        findings.same("what is dearest in a picture", (told[1], float(told[2])), (first["what"], first["factor"]))


def _titled(tables: dict[str, Rows], start: str) -> Rows:
    return next((rows for title, rows in tables.items() if start in title), [])


def _close(what: str, shown: str, value: float | None, findings: Findings) -> None:
    """A number as shown is the document's, to its last digit."""
    if value is None:
        findings.hold(shown in ("-", "inf", "infeasible"), f"{what}: {shown!r} for nothing")
    else:
        findings.same(what, number(shown), value, rel=1e-3, most=last_digit(shown))


def _sentences(document: dict[str, Any], findings: Findings) -> None:
    """Numbers in words."""
    result, inputs = document["result"], document["inputs"]
    best, said = result["recommended"], result["summary"]
    if best is None and said[0].startswith("Deploy "):
        several = [result.get(name) for name in ("classes", "by_priority", "regions")]
        costs = [f"${one['usd_per_hour']:,.2f}/h" for one in several if one]
        findings.hold(any(cost in said[0] for cost in costs), f"{said[0]}: none of {costs}")
        return
    if best is None:
        findings.hold(said[0].startswith("Nothing among "), said[0])
        first = result["rejections"][0]
        short = f"{first['binding']} binds ({first['have']} there, {first['need']} needed)"
        for part in (first["layout"], short, first["fix"]):
            findings.hold(part in said[1], f"the nearest miss is {first}, and {part!r} is not in: {said[1]}")
        return
    deploy = re.match(
        r"Deploy (.*) as (.*) for ([\d.,e+]+) req/s of (.*?) with .*: \$([\d,.]+)/h, \$(.*)/year", said[0]
    )
    findings.hold(deploy is not None, said[0])
    if deploy:
        _decomposition(deploy[1], best, findings)
        findings.same("the name in words", deploy[2], best["name"])
        _close("the rate in words", deploy[3], inputs["rate_rps"], findings)
        _close("dollars an hour in words", deploy[5], best["usd_per_hour"], findings)
        _close("dollars a year in words", deploy[6], best["usd_per_year"], findings)
    rests = best["pools"][0]["latency_provenance"]
    findings.hold(f"({rests})" in " ".join(said), f"it is not said that the first pool's steps are {rests}")
    one = next((d for d in result["alternatives"] if d["kind"] == "one pool"), None)
    for sentence in said[1:]:
        if match := re.match(r"The cheapest single pool takes (.*) at \$([\d,.]+)/h; this saves ([\d.]+%)", sentence):
            _decomposition(match[1], one, findings)
            _close("dollars of a single pool", match[2], one["usd_per_hour"], findings)
            saved = 1 - best["usd_per_hour"] / one["usd_per_hour"]
            findings.same("what is saved", number(match[3]), saved, most=last_digit(match[3]))
        elif match := re.match(r"The cheapest estimate is (.*) as (.*) at \$([\d,.]+)/h: ([\d.]+%) less", sentence):
            least = result["cheapest"]
            _decomposition(match[1], least, findings)
            findings.same("the cheapest in words", match[2], least["name"])
            _close("dollars of the cheapest", match[3], least["usd_per_hour"], findings)
            less = 1 - least["usd_per_hour"] / best["usd_per_hour"]
            findings.same("how much less", number(match[4]), less, most=last_digit(match[4]))
        elif match := re.search(r"the fleet is ([\d,]+) to ([\d,]+) GPUs", sentence):
            findings.same("the fleet's interval", numbers(match[0]), [best["gpus_low"], best["gpus_high"]])
        elif match := re.search(r"the fleet stays at ([\d,]+) GPU", sentence):
            findings.same("the fleet's interval", [number(match[1])] * 2, [best["gpus_low"], best["gpus_high"]])
        elif "cannot be told from" in sentence:
            others = [*result["by_gpu"], *result["alternatives"]]
            alike = re.findall(r"(?:told from that of|\) or) (.+?) \(([\d,]+) [^)]*\)", sentence)
            findings.hold(bool(alike), f"nobody is named in {sentence!r}")
            for name, count in alike:
                named = [d for d in others if (d["name"], d["fleet_gpus"]) == (name, int(number(count)))]
                findings.hold(bool(named), f"{name} of {count} GPUs is no alternative")
                near = any(_ratio(d, best) <= _unsure(d) + _unsure(best) + 1e-9 for d in named)
                findings.hold(near or not named, f"{name} can be told apart")
    if told := re.search(r"keeps its SLOs with a probability of (?:at least )?([\d.]+);", " ".join(said)):
        findings.same("the probability in words", number(told[1]), result["keeps_slos_probability"], most=0.0101)
    findings.same("that it keeps its SLOs, in words", told is not None, result["keeps_slos_probability"] > 0)
    _long_requests(result, findings)
    refused, cut = result["refused_frac"], result["cut_off_frac"]
    context = next((note for note in result["notes"] if note.startswith("Context:")), "")
    findings.same("a note on the context", bool(context), refused + cut > 0)
    if context:
        told = re.match(r"Context: ([\d.e-]+%)", context)[1]
        findings.same("requests beyond the context", number(told), refused + cut, rel=6e-3)


def _ratio(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Of two fleets' costs, as a logarithm without its sign."""
    return abs(math.log(one["usd_per_hour"] / other["usd_per_hour"]))


def _long_requests(result: dict[str, Any], findings: Findings) -> None:
    """Those are named that cost a quarter at least, and five times their share, with what others alone would cost."""
    dear = [x for x in result["longest_requests"] if x["cost_frac"] >= max(0.25, 5 * x["share_frac"])]
    said = next((note for note in result["notes"] if note.startswith("Long requests:")), None)
    findings.same("whether long requests are named", said is not None, bool(dear))
    if said:
        told = re.match(
            r"Long requests: (\S+%) .*\(from ([\d,]+) tokens\) make (all|\S+%) of .* \$([\d,.]+)/h would", said
        )
        of = 1.0 if told[3] == "all" else number(told[3])
        shown = [number(told[1]), number(told[2]), of, number(told[4])]
        most = [last_digit(told[1]), 0.501, 0.00501, 0.00501]
        keys = ("share_frac", "from_tokens", "cost_frac", "usd_per_hour")
        close = lambda one: all(abs(a - one[k]) <= m for a, k, m in zip(shown, keys, most, strict=True))
        findings.hold(any(map(close, dear)), f"{said!r} is of none of {dear}")


def _unsure(shown: dict[str, Any]) -> float:
    """Half the width of a fleet's interval, as a logarithm."""
    if shown["gpus_high"] is None or not shown["gpus_low"]:
        return math.inf
    return 0.5 * math.log(shown["gpus_high"] / shown["gpus_low"])


def _decomposition(text: str, shown: dict[str, Any], findings: Findings) -> None:
    """'10 GPUs = 2 x 4 h100_sxm (tp4pp1dp1ep1, prefill) + ...' is the fleet."""
    total, _, parts = text.partition(" = ")
    findings.same("GPUs in words", numbers(total), [shown["fleet_gpus"]])
    read = re.findall(r"(\d+) x (\d+) (\S+) \((\S+), (\S+)\)", parts)
    pools = [
        (str(p["pool_instances"]), str(p["gpus_per_instance"]), p["gpu"], p["layout"], p["name"])
        for p in shown["pools"]
    ]
    findings.same("pools in words", read, pools)


def _tables(document: dict[str, Any], tables: dict[str, Rows], findings: Findings) -> None:
    """The tables that terminal and page share."""
    result, best = document["result"], document["result"]["recommended"]
    rows = _titled(tables, "Recommended pools")
    slo = f"P{100 * document['inputs']['slo_percentile']:g} [ms]"
    for row in [*rows, *_titled(tables, "Alternatives")]:
        findings.hold({f"TTFT {slo}", f"TPOT {slo}"} <= row.keys(), f"no TTFT and TPOT {slo} in {list(row)}")
    count = len(best["pools"])
    findings.same("rows of pools", len(rows), count + (count > 1))
    for row, pool in zip(rows, best["pools"], strict=False):
        _pool_row(row, pool, findings)
    if len(rows) > count:
        total = rows[count]
        findings.same("requests together", total["requests"], "100.0%")
        findings.same("instances together", number(total["instances"]), sum(p["pool_instances"] for p in best["pools"]))
        for column, field in (("GPUs", "fleet_gpus"), ("USD/h", "usd_per_hour"), ("USD/year", "usd_per_year")):
            _close(f"{column} together", total[column], best[field], findings)
        for metric in ("TTFT", "TPOT"):
            shown = next(cell for name, cell in total.items() if name.startswith(metric))
            _close(f"{metric} together", shown, best[f"{metric.lower()}_ms"], findings)
    _alternatives(document, _titled(tables, "Alternatives"), findings)
    base = result["cheapest"]["usd_per_hour"]
    rows = _titled(tables, "Sensitivity")
    findings.same("rows of sensitivities", len(rows), len(result["sensitivity"]))
    for row, change in zip(rows, result["sensitivity"], strict=False):
        findings.same("what changes", (row["input"], row["change"]), (change["what"], f"x {change['factor']:g}"))
        _close(f"USD/h at {row}", row["USD/h"], change["usd_per_hour"], findings)
        name, refused = re.fullmatch(r"(.*?)(?:, ([\d.e-]+%) refused)?", row["then"]).groups()
        findings.same(f"the fleet at {row}", name, change["name"])
        findings.same(f"refused otherwise at {row}", bool(refused), change["refused_frac"] != result["refused_frac"])
        if refused:
            findings.same(f"refused at {row}", number(refused), change["refused_frac"], most=last_digit(refused))
        if change["usd_per_hour"] is not None and not result["ensured"]:
            more = change["usd_per_hour"] / base - 1
            findings.same(f"cost at {row}", number(row["cost"].lstrip("+")), more, most=0.00051)


def _pool_row(row: dict[str, str], pool: dict[str, Any], findings: Findings) -> None:
    name = pool["name"]
    findings.same("a pool's name", row["pool"], name)
    findings.same(f"layout of {name}", row["layout"].split(" w=")[0], f"{pool['gpu']} {pool['layout']}")
    findings.same(f"what binds {name}", row["one instance less breaks"], pool["binding"])
    plain = [("requests", "request_share_frac"), ("instances", "pool_instances"), ("GPUs", "pool_gpus")]
    for column, field in [*plain, ("USD/h", "usd_per_hour")]:
        _close(f"{column} of {name}", row[column], pool[field], findings)
    _close(f"USD/year of {name}", row["USD/year"], 8760 * pool["usd_per_hour"], findings)
    findings.same(f"slots of {name}", number(row["slots"]), int(pool["slots_count"]))
    serves = pool["role"] != "prefill"
    if serves:
        _close(f"in flight in {name}", row["in flight"], pool["decode_count"], findings)
    for metric in ("TTFT", "TPOT") if serves else ("TTFT",):
        shown = next(cell for column, cell in row.items() if column.startswith(metric))
        field = metric.lower()
        figures = [pool[f"{field}_ms"], *pool[f"{field}_interval80_ms"]]
        for text, value in zip(re.findall(r"[\d,.]+", shown), figures, strict=True):
            findings.same(f"{metric} of {name}", number(text), value, rel=6e-3)


def _alternatives(document: dict[str, Any], rows: Rows, findings: Findings) -> None:
    result = document["result"]
    known: dict[tuple[str, str], dict[str, Any]] = {}
    best, least = result["recommended"], result["cheapest"]
    known[f"recommended: {best['name']}", _parts(best)] = best
    taken = {(best["name"], _parts(best))}
    for label, d in [("", d) for d in result["alternatives"]] + [("cheapest estimate: ", least)]:
        if (d["name"], _parts(d)) not in taken:
            taken.add((d["name"], _parts(d)))
            known[f"{label}{d['name']}", _parts(d)] = d
    for d in result["by_gpu"]:
        if (d["name"], _parts(d)) not in taken:
            known[f"only {d['pools'][0]['gpu']}: {d['name']}", _parts(d)] = d
    findings.same("alternatives", {(row["alternative"], row["pools"]) for row in rows}, set(known))
    served = document["inputs"]["rate_rps"] * document["inputs"]["mean_output_tokens"]
    for row in rows:
        d = known.get((row["alternative"], row["pools"]))
        if d is None:
            continue
        for column, field in (("GPUs", "fleet_gpus"), ("USD/h", "usd_per_hour"), ("USD/year", "usd_per_year")):
            _close(f"{column} of {d['name']}", row[column], d[field], findings)
        low, _, high = row["80 % interval"].partition(" to ")
        _close(f"fewest GPUs of {d['name']}", low, d["gpus_low"], findings)
        _close(f"most GPUs of {d['name']}", high, d["gpus_high"], findings)
        for metric in ("TTFT", "TPOT"):
            shown = next(cell for column, cell in row.items() if column.startswith(metric))
            _close(f"{metric} of {d['name']}", shown, d[f"{metric.lower()}_ms"], findings)
        if not result["refused_frac"] and not result["cut_off_frac"]:
            dollars = d["usd_per_hour"] / (3600 * served) * 1e6
            findings.same(f"dollars a million tokens of {d['name']}", number(row["USD/Mtoken out"]), dollars, rel=1e-2)


def _parts(d: dict[str, Any]) -> str:
    pools = d["pools"]
    return " + ".join(
        f"{p['pool_instances']} x {p['gpus_per_instance']} {p['gpu']} ({p['layout']}, {p['name']})" for p in pools
    )


def _launches(best: dict[str, Any], text: str, findings: Findings) -> None:
    """The lines to be copied are the document's, each under its pool's name and number."""
    for pool in best["pools"]:
        lines = f"# {pool['name']}: {pool['pool_instances']} x\n{pool['command']}"
        findings.hold(lines in text, f"not among the lines to be copied: {lines}")


def _router(router: dict[str, Any], text: str, findings: Findings) -> None:
    """Below the lines to be copied, what the router is told."""
    line = re.search(r"^# router: (.*)$", text, re.M)
    told = dict(part.split(" = ") for part in line[1].split(", ")) if line else {}
    findings.same("what the router is told", told.keys(), router.keys())
    for key, value in router.items():
        shown = told.get(key, "")
        if isinstance(value, str):
            findings.same(f"{key} of the router", shown, value)
        else:
            _close(f"{key} of the router", shown, value, findings)


def _card(document: dict[str, Any], tables: dict[str, Rows], findings: Findings) -> None:
    """The answer in short: a year has twelve months, and what binds binds a pool."""
    result, best = document["result"], document["result"]["recommended"]
    (row,) = _titled(tables, "In short")
    findings.same("GPUs in short", number(row["GPUs"]), best["bought_gpus"])
    findings.same("dollars a month", number(row["USD a month"]), best["usd_per_year"] / 12, most=0.51)
    findings.same(
        "growth in short",
        numbers(row["growth of the load that it bears"])[0] / 100,
        result["rate_headroom_frac"],
        most=0.0051,
    )
    if result["keeps_slos_probability"] and (told := re.search(r"([01]\.\d+)", row["probability that the SLOs hold"])):
        findings.same("probability in short", number(told[1]), result["keeps_slos_probability"], most=0.0101)
    if "GPUs for another stretch" in row:
        findings.same("GPUs of the next", number(row["GPUs for another stretch"]), result["ensured"]["next_gpus"])
    fullest = max(best["pools"], key=lambda pool: pool["load_frac"])
    findings.same("what binds the fullest pool, in short", row["one instance less breaks"], fullest["binding"])


def _memory(document: dict[str, Any], tables: dict[str, Rows], findings: Findings) -> None:
    """A GPU's memory is what its parts take; what is left over is a tenth of it."""
    for row, pool in zip(_titled(tables, "Memory of one GPU"), document["result"]["recommended"]["pools"], strict=True):
        parts = {name: number(cell) for name, cell in row.items() if name.endswith("[GiB]")}
        whole = parts.pop("all [GiB]")
        findings.same(f"memory of {row['pool']}", sum(parts.values()), whole, rel=2e-2)
        findings.same(f"left over in {row['pool']}", parts["left over [GiB]"], 0.1 * whole, rel=1e-2)
        findings.same(f"GPU of {row['pool']}", row["GPU"], pool["gpu"])
        findings.hold(all(part >= 0 for part in parts.values()), f"less than nothing: {row}")
        _in_use(parts["KV in use [GiB]"], pool, document["inputs"], findings)


def _in_use(shown: float, pool: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """The cache in use is that of the requests in flight: of a prefill worker those that come until one has left."""
    card = model_card(inputs["model"])
    if card is None or pool["kv"] != "as published" or inputs["prefix_hit_frac"]:
        return
    a_second = inputs["rate_rps"] * pool["request_share_frac"] / pool["pool_instances"]
    held = a_second * pool["ttft_ms"] / 1e3 if pool["role"] == "prefill" else pool["decode_count"]
    longer = 2 if pool["role"] == "prefill" else 8  # a long answer stays longer than a short one
    tokens = held * (inputs["mean_input_tokens"] + inputs["mean_output_tokens"]) * longer
    most = tokens * card["kv_bytes_per_token"] / 2**30  # of all GPUs
    findings.hold(shown <= max(most, 0.01), f"{shown} GiB of {pool['name']} in use by {held:.3g} requests: {most:.3g}")


def _risks(document: dict[str, Any], tables: dict[str, Rows], words: str, findings: Findings) -> None:
    """Saturation, bursts and failures agree with each other and with the headroom."""
    result = document["result"]
    best, pools = result["recommended"], result["recommended"]["pools"]
    load = _titled(tables, "Saturation")
    for row, pool in zip(load, pools, strict=True):
        growth = number(row["saturates at a rate"].removeprefix("x "))
        findings.same(f"load of {row['pool']}", number(row["load"]), 1 / growth, rel=2e-2, most=0.0051)
        now, near = number(row["TTFT now [ms]"]), number(row["TTFT at 95 % load [ms]"])
        if number(row["load"]) < 0.94:
            findings.ordered(f"TTFT of {row['pool']} now and near saturation", now, near)
        if not best["replay"]:
            findings.same(f"TTFT of {row['pool']}", now, pool["ttft_ms"], rel=2e-3)
    bursts = _titled(tables, "Burst")
    if not best["replay"]:
        for row in bursts:
            grown = number(row["rate"].removeprefix("x ")) - 1
            if abs(grown - result["rate_headroom_frac"]) > 0.0201 and result["rate_headroom_frac"] < 1.2:
                kept = grown < result["rate_headroom_frac"]
                findings.same(f"a burst of {row['rate']}", row["SLOs kept"].startswith("yes"), kept)
    head = next(head for head in bursts[0] if head.startswith("TTFT "))
    late = [number(row[head]) for row in (*bursts, *_titled(tables, "Failure")) if row[head] != "-"]
    findings.ordered("TTFT now and in bursts", *late[: len(bursts)], rel=FOUR)
    if not best["replay"]:
        findings.ordered("TTFT now, and at its least under more load", best["ttft_ms"], min(late), rel=FOUR)
    kept = [row["SLOs kept"].startswith("yes") for row in bursts]
    findings.same("bursts once broken stay broken", kept, sorted(kept, reverse=True))
    first = max(zip(load, pools, strict=True), key=lambda pair: number(pair[0]["load"]))[0]
    if told := re.search(r"Saturation: (?:the (\S+) pool|the pool) runs at (\d+%)", words):
        findings.hold(told[1] in (None, first["pool"]) or told[2] == first["load"], f"{told[0]}, but {first} is fuller")
        findings.same("load in words", told[2], first["load"])
        _margins(first, bursts, words, findings)
    for row, pool in zip(_titled(tables, "Failure"), pools, strict=True):
        findings.same(f"instances of {row['pool']}", row["lost"], f"1 of {pool['pool_instances']}")
        spare = pool["usd_per_hour"] / pool["pool_instances"]
        _close(f"a spare of {row['pool']}", row["a spare costs [USD/h]"], spare, findings)
    lost = _titled(tables, "Failure")
    if told := re.search(r"Failure: .*? costs \$([\d,.]+)/h", words):
        alone = [row for row in lost if row["SLOs kept"].startswith("no: nothing")]
        spares = alone or [row for row in lost if not row["SLOs kept"].startswith("yes")]
        dollars = sum(number(row["a spare costs [USD/h]"]) for row in spares)
        findings.same("dollars of spares in words", number(told[1].rstrip(".")), dollars, rel=2e-3)
    _stale(_titled(tables, "Stale telemetry"), pools, words, findings)
    survives = [row["SLOs kept"].startswith("yes") for row in lost]
    if not best["replay"]:
        findings.same("the loss of an instance", all(survives), result["survives_loss_of_an_instance"])


#: Figures that are rounded to four digits.
FOUR = 2e-3
#: Seconds in a unit, as people say times.
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _seconds(text: str) -> float:
    """'250 ms', '1.5 h', 'any age', '-'."""
    if text in ("any age", "-"):
        return math.inf if text == "any age" else 0.0
    value, unit = text.split()
    return float(value) * UNITS[unit]


def _stale(rows: Rows, pools: list[dict[str, Any]], words: str, findings: Findings) -> None:
    """Of pools of several instances; counts are forgotten while their requests live; the pool named herds first."""
    several = [pool for pool in pools if pool["pool_instances"] > 1]
    findings.same("pools that a router chooses in", [row["pool"] for row in rows], [pool["name"] for pool in several])
    for row, pool in zip(rows, several, strict=False):
        forgotten = _seconds(row["a reading is forgotten after"])
        findings.hold(
            1e-4 * pool["e2e_ms"] <= 1e3 * forgotten <= 0.75 * pool["e2e_ms"] or math.isinf(forgotten),
            f"{row['pool']}: forgotten after {forgotten} s, requests live {pool['e2e_ms']} ms at most",
        )
    if told := re.search(r"needs readings younger than (\S+(?: (?:ms|s|min|h|age))?) \(the (?:(\S+) )?pool\)", words):
        first = min(rows, key=lambda row: _seconds(row["herds beyond"]))
        findings.same("the age of readings in words", told[1], first["herds beyond"])
        findings.hold(told[2] in (None, first["pool"]), f"{told[0]}, but {first} herds first")
    findings.same("a word on readings", told is not None, bool(rows))


def _margins(first: dict[str, str], bursts: Rows, words: str, findings: Findings) -> None:
    """The knee, the growth to saturation and the first burst that breaks an SLO, in words and in the tables."""
    load, knee = number(first["load"]), number(first["knee at"])
    told = re.search(r"(beyond|before) its knee at (\d+%)", words)
    findings.same("the knee in words", number(told[2]), knee)
    if abs(load - knee) > 0.011:
        findings.same("the side of the knee", told[1], "beyond" if load > knee else "before")
    growth = number(first["saturates at a rate"].removeprefix("x ")) - 1
    room = number(re.search(r"breaks and by ([\d,]+%) before queues grow", words)[1])
    findings.same("growth to saturation in words", room, growth, most=0.0101)
    broken = [row["rate"].removeprefix("x ") for row in bursts if not row["SLOs kept"].startswith("yes")]
    said = re.search(r"Burst: (no burst|[\d.]+) ", words)[1]
    findings.same("the burst that breaks an SLO", said, broken[0] if broken else "no burst")
