"""How a plan is answered: what is looked at beside it, what is written and shown, and in which order, by fakes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import deployments, main, plan, report
from dmodels.cli.plan import Beside
from dmodels.cli.plan_inputs import PlanInputs
from dmodels.report import parted, plan_json, plan_notes, plan_page, plan_tables, plan_words, replay_tables
from dmodels.studies import plan as study
from dmodels.studies import servers


@pytest.fixture
def fleet():
    pools = [Record(stage=Record(name=name), instances=k) for k, name in ((3, "prefill"), (2, "decode"))]
    question = Record(workload="workload", trace=None, name="question")
    found = Record(question=question, best=Record(pools=pools, name="best"), points_count=12_345, rejections=[])
    found.to_dataframe = lambda: "the table"
    return found


@pytest.fixture
def world(unaudited, monkeypatch, fleet):
    """The library, of which every function says what it was given; the plan that it finds is `fleet`."""
    done = []
    noted = lambda name: lambda *given, **how: done.append((name, *given)) or f"{name} found"
    monkeypatch.setattr(PlanInputs, "call", lambda asked: "question")
    monkeypatch.setattr(study, "plan", lambda question, **how: done.append(("plan", question, how)) or fleet)
    for name in ("suggestions", "sensitivity", "verify", "tails", "plan_apart", "plan_regions", "solved"):
        monkeypatch.setattr(study, name, noted(name))
    for name in ("in_cheapest_region", "at_limit"):
        made = lambda question, *given, name=name, **how: done.append((name, question, *given, how)) or f"{name} asked"
        monkeypatch.setattr(study, name, made)
    monkeypatch.setattr(study, "long_tailed", lambda found: False)
    kinds = [Record(priority=0), Record(priority=0)]
    monkeypatch.setattr(study, "with_others", lambda named, traffic, slo: done.append(("classes", traffic)) or kinds)
    monkeypatch.setattr(servers, "plan_together", noted("plan_together"))
    monkeypatch.setattr(plan_page, "plan_page", lambda *given: done.append(("page", *given)) or "the page")
    monkeypatch.setattr(plan, "write_table", lambda made, out: done.append(("table", made)) or out)
    monkeypatch.setattr(plan, "_show", lambda found, more: done.append(("show", found.best and found.best.name)))
    monkeypatch.setattr(plan, "_feasible", lambda found, more: found.best is not None)
    monkeypatch.setattr(Beside, "told", lambda more, found: "told")
    monkeypatch.setattr(Beside, "parted", lambda more, found: "parted")
    return Record(done=done, kinds=kinds, found=fleet, names=lambda: [name for name, *_ in done])


def asked(*words):
    return main(["plan", *words])


def test_by_itself_a_plan_is_looked_at_from_all_sides_and_shown(world):
    assert asked() == 0
    found = world.found
    assert world.done == [
        ("plan", "question", {}),
        ("suggestions", found),
        ("sensitivity", found),
        ("tails", found),
        ("show", "best"),
    ]


def test_what_is_not_wanted_is_not_looked_for(world, monkeypatch):
    """Long requests are looked at where there are some, or where nothing fits."""
    assert asked("--no-sensitivity", "--no-ensure") == 0
    assert world.done == [("plan", "question", {"ensure": False}), ("show", "best")]
    monkeypatch.setattr(study, "long_tailed", lambda found: True)
    world.done.clear()
    assert asked("--no-sensitivity") == 0 and world.names() == ["plan", "tails", "show"]


def test_where_nothing_fits_nothing_is_varied_or_verified(world):
    world.found.best = None
    assert asked("--verify", "--solve-for", "rate") == 1
    assert world.names() == ["at_limit", "plan", "suggestions", "tails", "show"]
    world.done.clear()
    assert asked("--no-sensitivity") == 1 and world.names() == ["plan", "tails", "show"]


def test_a_fleet_is_verified_and_solved_for_where_it_is_asked(world):
    assert asked("--no-sensitivity", "--verify", "--solve-for", "rate", "--ensure") == 0
    found = world.found
    assert world.done == [
        ("at_limit", "question", "rate", {"ensure": True}),
        ("plan", "at_limit asked", {"ensure": True}),
        ("verify", found),
        ("solved", found, "rate"),
        ("show", "best"),
    ]


@pytest.mark.parametrize("trace", [None, "the trace"])
def test_classes_have_fleets_of_their_own_and_one_together_where_priorities_tell_them_apart(world, trace):
    world.found.question.trace = trace
    question, traffic = world.found.question, trace or "workload"
    line = ["--class", "a: to 100", "--class", "b: from 100, priority 1", "--ensure"]
    assert asked(*line) == 0
    apart = [("classes", traffic), ("plan_apart", question, world.kinds, True)]
    assert [one for one in world.done if "class" in one[0] or "plan_" in one[0]] == apart
    assert "tails" not in world.names()  # classes say what they cost
    world.done.clear()
    world.kinds[1].priority = 1
    assert asked(*line) == 0
    assert world.done[-2] == ("plan_together", question, world.kinds) and world.names().count("plan_apart") == 1


def test_regions_are_planned_together_beside_the_cheapest(world):
    assert asked("--no-sensitivity", "--region", "us: h100_sxm=2", "--region", "eu: h100_sxm=3") == 0
    (_, question, regions, how), planned, (_, first, both), shown = world.done
    assert [one.name for one in regions] == ["us", "eu"] == [one.name for one in both]
    assert (question, first, how) == ("question", "question", {}) and shown == ("show", "best")
    assert planned == ("plan", "in_cheapest_region asked", {})


def test_what_runs_is_judged_by_replays_and_so_is_the_plan_beside_it(world, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        deployments.Deployments, "existing", lambda tools, of: seen.append((tools.running, of)) or "now"
    )
    monkeypatch.setattr(plan, "_show", lambda found, more: seen.append(more.now))
    where = str(tmp_path / "run.sh")
    assert asked("--no-sensitivity", "--from-deployment", where) == 0
    assert seen == [((Path(where),), world.found.question), "now"] and world.done[0][2] == {"ensure": True}
    assert asked("--no-sensitivity", "--from-deployment", where, "--no-ensure") == 0
    assert world.done[-1][2] == {"ensure": False}


def test_a_plan_is_written_before_it_is_shown_as_its_file_ends(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["python", "-c"])
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    assert asked("--verify", "--out", str(page)) == 0 and page.read_text() == "the page"
    found = world.found
    written = ("page", found, "sensitivity found", "dmodels plan", "verify found", "told", "parted")
    assert world.done[-2:] == [written, ("show", "best")] and capsys.readouterr().err == f"report: {page}\n"
    assert asked("--no-sensitivity", "--out", str(table)) == 0
    assert world.done[-2:] == [("table", "the table"), ("show", "best")] and not table.exists()
    assert capsys.readouterr().err == f"table: {table}\n"


def test_a_plan_is_asked_again_with_its_own_words_and_written_to_what_it_may_be(world, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(plan, "answer", lambda asked, form, again, **how: seen.append(again) or 0)
    for argv, again in (
        (["dmodels", "plan", "--rate", "2 req/s"], "dmodels plan --rate '2 req/s'"),
        (["dmodels", "plan"], "dmodels plan"),
        (["dmodels", "report", "plan"], "dmodels plan"),
        (["python"], "dmodels plan"),
    ):
        monkeypatch.setattr("sys.argv", argv)
        assert asked() == 0 and seen.pop() == again
    monkeypatch.undo()
    assert asked("--out", str(tmp_path / "x.doc")) == 2
    endings = ".html, .htm, .csv, .parquet or .arrow"
    assert capsys.readouterr().err.endswith(f"x.doc: a name that ends in {endings} is accepted\n")


def test_all_that_is_found_beside_a_plan_has_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr(plan_json, "result", lambda *given: {"given": given[1:]})
    monkeypatch.setattr(Beside, "parted", lambda more, found: None)
    monkeypatch.setattr(plan, "_feasible", lambda found, more: True)
    of = lambda name: Record(to_dict=lambda: f"what {name} is")
    names = {"checks": "verification", "now": "running_now", "limit": "solved", "apart": "classes"}
    names |= {"together": "by_priority", "regions": "regions"}
    for field, name in names.items():
        told = {"given": ([], [], []), "feasible": True, name: f"what {field} is"}
        assert plan._result("found", Beside(**{field: of(field)})) == told
    assert plan._result("found", Beside(["c"], ["s"], ["t"]))["given"] == (["c"], ["s"], ["t"])


def test_a_deployment_is_written_to_its_folder_and_no_page(world, tmp_path, monkeypatch):
    wrote = []
    monkeypatch.setattr(deployments.Deployments, "write", lambda tools, of: wrote.append((tools, of)))
    assert asked("--no-sensitivity", "--deploy", "ray", "--out", str(tmp_path / "x")) == 0
    assert asked("--no-sensitivity") == 0
    (first, found), (second, _) = wrote
    assert (first.form, first.folder, first.running, found) == ("ray", tmp_path / "x", (), world.found)
    assert (second.form, second.folder) == (None, None) and "page" not in world.names()


def test_the_document_states_what_was_asked_and_all_that_was_found(world, monkeypatch):
    monkeypatch.setattr(plan, "_inputs", lambda found: {"inputs of": found.best.name})
    monkeypatch.setattr(plan, "_result", lambda found, more: {"result of": found.best.name, "changes": more.changes})
    documents = []
    monkeypatch.setattr(plan.render, "as_json", lambda *told: documents.append(told) or "{}")
    assert asked("--json", "--tp", "4") == 0
    ((name, inputs, result),) = documents
    assert name == "plan" and inputs["inputs of"] == "best" and inputs["asked"]["space"]["tp"] == [4]
    assert result == {"result of": "best", "changes": "sensitivity found"}


def test_a_report_is_a_page_beside_where_it_is_asked(world, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(report.plan, "answer", lambda asked, form, again, **how: seen.update(how, again=again) or 4)
    file = tmp_path / "there" / "s.v2.toml"
    file.parent.mkdir()
    file.write_text("")
    assert main(["report", str(file), "--verify", "--no-sensitivity", "--no-ensure"]) == 4
    again = f"dmodels report {file} --out s.v2.html"
    assert seen == {"again": again, "out": Path("s.v2.html"), "sensitivity": False, "ensure": False, "verify": True}


@pytest.fixture
def shown(monkeypatch, fleet):
    """Every table by its name, in the order in which they are shown."""
    monkeypatch.setattr(plan.render, "show", lambda tables: print([one[0] for one in tables]))
    for place, names in (
        (plan_tables, ("classes", "together", "regions", "pools", "alternatives", "sensitivity")),
        (replay_tables, ()),
    ):
        for name in names:
            monkeypatch.setattr(place, f"{name}_table", lambda *of, name=name: (name, [], [*of]))
    rejections = lambda found: ("rejections", ["head"], [*range(12)])
    monkeypatch.setattr(plan_tables, "rejections_table", rejections)
    monkeypatch.setattr(replay_tables, "tables", lambda found, checks: [("replays", [], [])])
    monkeypatch.setattr(replay_tables, "verdict", lambda checks: f"verdict of {checks}")
    monkeypatch.setattr(plan_words, "card", lambda found: ("card", [], []))
    monkeypatch.setattr(plan_words, "sentences", lambda found: ["a sentence", "another"])
    monkeypatch.setattr(plan_words, "headroom", lambda found: "8%")
    monkeypatch.setattr(plan_notes, "notes", lambda found: ["a note"])
    monkeypatch.setattr(study, "command", lambda pool, question: f"serve {pool.stage.name} of {question.name}")
    monkeypatch.setattr(Beside, "told", lambda more, found: ["told"])
    monkeypatch.setattr(Beside, "parted", lambda more, found: None)
    monkeypatch.setattr(plan.deployments, "tables", lambda now, best: [("now", [], []), (best and best.name, [], [])])
    return fleet


SAID = ["a sentence", "another", "a note", "told", ""]
STARTED = ["# prefill: 3 x", "serve prefill of question", "# decode: 2 x", "serve decode of question"]


def test_a_plan_is_shown_from_what_to_do_to_what_it_rests_on(shown, capsys):
    plan._show(shown, Beside())
    end = [*STARTED, "# rate headroom 8%; 12,345 points evaluated"]
    fleet = ["['card', 'pools', 'alternatives']", "['replays']"]
    assert capsys.readouterr().out.splitlines() == [*SAID, *fleet, *end]
    shown.rejections = ["r"]
    plan._show(shown, Beside(["change"], checks="checks", now="now", apart="a", together="t", regions="r"))
    assert capsys.readouterr().out.splitlines() == [
        *SAID,
        "['classes']",
        "['together']",
        "['regions']",
        *fleet,
        "verdict of checks",
        "",
        "['sensitivity']",
        *end,
        "['now', 'best']",
        "['rejections']",
    ]


def test_where_several_fleets_are_the_answer_they_are_said_first_and_started_last(shown, capsys, monkeypatch):
    several = Record(sentence=lambda found: "Deploy both.", launches=["# us", "serve us"])
    monkeypatch.setattr(Beside, "parted", lambda more, found: several)
    shown.best, shown.rejections, rows = None, ["r"], []
    monkeypatch.setattr(plan.render, "show", lambda tables: rows.extend(tables))
    plan._show(shown, Beside(now="now"))
    assert capsys.readouterr().out.splitlines() == ["Deploy both.", *SAID[2:], "# us", "serve us"]
    assert [title for title, *_ in rows] == ["now", None, "rejections"]
    assert rows[-1] == ("rejections", ["head"], [*range(8)])  # the first of them


def test_documents_have_the_sentence_of_several_fleets(monkeypatch):
    monkeypatch.setattr(plan_json, "result", lambda *given: {"summary": ["one"], "given": given})
    monkeypatch.setattr(plan_json, "inputs", lambda found: f"inputs of {found}")
    monkeypatch.setattr(Beside, "parted", lambda more, found: Record(sentence=lambda found: f"several of {found.name}"))
    found = Record(best=None, name="it")
    assert plan._result(found, Beside()) == {
        "summary": ["several of it"],
        "given": (found, [], [], []),
        "feasible": False,
    }
    assert plan._inputs("it") == "inputs of it"


def test_what_is_parted_is_of_classes_priorities_and_regions(monkeypatch):
    monkeypatch.setattr(parted, "parted", lambda *given: given)
    assert Beside(apart="a", together="t", regions="r").parted("found") == ("found", "a", "t", "r")
    monkeypatch.setattr(plan_notes, "advice", lambda *given: [("advice", *given)])
    for name in ("classes_told", "together_told", "regions_told"):
        monkeypatch.setattr(plan_notes, name, lambda *given, name=name: [(name, *given)])
    beside = Beside(suggested="s", tail="l", limit="m", apart="a", together="t", regions="r")
    assert beside.told("found") == [
        ("advice", "s", "l", "m"),
        ("classes_told", "found", "a"),
        ("together_told", "t"),
        ("regions_told", "r"),
    ]
