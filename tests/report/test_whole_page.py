"""The page of a plan: what stands on it, in which order, and what is shut until it is asked for."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace as Record

import pytest

pytest.importorskip("matplotlib")

from dmodels.report import parted, plan_json, plan_page, plan_tables, plan_words, provenance, replay_tables, risk_tables


class Told(HTMLParser):
    """What a reader reads from top to bottom, with `+` before the titles of what is shut."""

    def __init__(self, page):
        super().__init__()
        self.inside, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if data.strip() and "style" not in self.inside and "main" in self.inside:
            self.words += [("+ " if "summary" in self.inside else "") + line for line in data.strip().splitlines()]


def table(name):
    """One whose words are no words of the glossary, which would be links."""
    return f"the-{name}", [f"{name}-head"], [[f"{name}-cell"]]


def shown(name):
    return [f"the-{name}", f"{name}-head", f"{name}-cell"]


def in_turn(given):
    """Whether the answer, where it is among what a part is made of, comes first."""
    return not any(hasattr(one, "question") for one in given[1:])


@pytest.fixture
def parts(monkeypatch):
    """Every part of the page as its own name."""
    for module, names in (
        (plan_tables, ("rejections", "memory", "alternatives", "sensitivity", "pools")),
        (risk_tables, ("load", "burst", "loss", "stale")),
        (provenance, ("claims",)),
    ):
        for name in names:
            monkeypatch.setattr(module, f"{name}_table", lambda *given, name=name: table(name) * in_turn(given))
    monkeypatch.setattr(provenance, "rests_on", lambda answer: table("rests"))
    monkeypatch.setattr(plan_words, "card", lambda answer: ("", ["of what", "of this"], [[8, 2.5]]))
    monkeypatch.setattr(plan_words, "in_three_sentences", lambda answer: ["One.", "Two."])
    monkeypatch.setattr(risk_tables, "sentences", lambda *given: ["first", "second"] * in_turn(given))
    monkeypatch.setattr(replay_tables, "tables", lambda answer, checks: [table(one) for one in checks or ()])
    monkeypatch.setattr(replay_tables, "verdict", lambda checks: "verdict")
    monkeypatch.setattr(plan_json, "inputs", lambda answer: {"a": 1234.5, "b": (2, 4096), "c": {"x": 0.5, "y": 8}})
    monkeypatch.setattr(plan_page, "notes", lambda answer: ["a note"])
    monkeypatch.setattr(plan_page, "memory_use", lambda answer: ["use 1", "use 2"])
    monkeypatch.setattr(plan_page, "risks", lambda answer: Record(loads=["one", "two"], stale=answer.stale))
    monkeypatch.setattr(plan_page, "command", lambda pool, asked: f"serve {pool.stage.name} for {asked.model_name}")
    monkeypatch.setattr(plan_page, "pictures", lambda drawn, first=0: f"<i>{first}: {', '.join(drawn)}</i>")
    for name in ("latency", "occupancy", "memory", "threshold", "tornado"):
        told = lambda *given, name=name: f"{name} {' '.join(map(str, [x for x in given if isinstance(x, str | list)]))}"
        drawn = lambda *given, told=told: told(*given) * in_turn(given)
        monkeypatch.setattr(plan_page, f"{name}_drawing", drawn)
    monkeypatch.setattr(plan_page, "answer_drawings", lambda answer: ["promises", "costs"])
    monkeypatch.setattr(plan_page, "fleet_drawings", lambda answer: ["fleets"])


def answer(**more):
    pools = [Record(stage=Record(name=name), instances=n) for name, n in (("short", 3), ("long", 1))]
    best = Record(pools=pools, router={"policy": "jsq", "split": 1024})
    known = {"best": best, "rejections": [], "by_threshold": (), "stale": [], "points_count": 12_345}
    return Record(question=Record(model_name="m", rate_rps=1500.0), **known | more)


DEPLOY = ["What to deploy", *shown("pools"), "# short: 3 x", "serve short for m", "# long: 1 x", "serve long for m"]
DEPLOY += ["# router: policy = jsq, split = 1024"]
PICTURES = "fleets, latency one, occupancy one use 1, latency two, occupancy two use 2, memory ['use 1', 'use 2']"
RESTS = ["+ What it rests on", *shown("rests"), "+ The papers' claims behind the formulas, as they were checked"]
RESTS += [*shown("claims"), "+ Inputs and reproduction", "Inputs", "input", "value"]
RESTS += ["a", "1,234", "b", "2, 4,096", "c", "x: 0.5, y: 8", "dmodels plan --model m"]
TITLE = "Capacity plan: m, 1,500 req/s"


def told(asked, changes=(), checks=None, **more):
    page = Told(plan_page.plan_page(asked, list(changes), "dmodels plan --model m", checks, **more))
    last = page.words.index("+ Words")
    assert page.words[last - 1].endswith("; 12,345 points evaluated.") and not page.inside
    return page.words[: last - 1]


def test_a_page_of_a_plan_is_told_in_turn(parts):
    head = [TITLE, "8", "of what", "2.5", "of this", "100: promises, costs", "One. Two.", "a note"]
    why = ["+ Why", f"0: {PICTURES}", *shown("memory"), "+ Alternatives", *shown("alternatives")]
    wrong = ["+ What could go wrong", "first", "second", *shown("load"), *shown("burst"), *shown("loss")]
    assert told(answer()) == [*head, *DEPLOY, *why, *wrong, *RESTS]
    asked = answer(rejections=["fell"], by_threshold=((1, 2),), stale=["old"])
    why[1] += ", threshold , tornado ['change']"
    wrong += [*shown("stale"), "+ What fell, and why", *shown("rejections")]
    moved = ["+ If an input is wrong", *shown("sensitivity")]
    held = ["+ Does it hold", "verdict", *shown("replay-1"), *shown("replay-2")]
    found = told(asked, ["change"], ["replay-1", "replay-2"], advice=["advice"])
    assert found == [*head, "advice", *DEPLOY, *held, *why, *moved, *wrong, *RESTS]


def test_a_page_without_a_fleet_opens_what_fell(parts, monkeypatch):
    words = told(answer(best=None, rejections=["fell"]))
    head = [TITLE, "8", "of what", "2.5", "of this", "One. Two.", "a note"]
    assert words == [*head, "What fell, and why", *shown("rejections"), *RESTS]
    monkeypatch.setattr(parted, "command", lambda pool, asked: f"serve {pool.stage.name} for {asked.model_name}")
    site = Record(best=answer().best, plan=Record(question=Record(model_name="m")))
    several = parted.Parted("fleets in several regions", 12, 30.0, table("regions"), {"east": site})
    asked = answer(best=None)
    asked.question.workload_name, asked.priced = "chats", Record(admitted=Record(refused_frac=0.0))
    words = told(asked, several=several)
    card = ["12", "GPUs", "21,900", "USD a month", "fleets in several regions", "as"]  # 730 hours
    assert words[: len(card) + 1] == [TITLE, *card] and words[7].startswith("Deploy 12 GPUs as fleets in several")
    starts = ["# east, short: 3 x", "serve short for m", "# east, long: 1 x", "serve long for m"]
    assert words[8:] == ["a note", "What to deploy", *shown("regions"), *starts, *RESTS]
