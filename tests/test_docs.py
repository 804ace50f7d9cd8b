"""Every code block of the guide and the README runs and prints what the page shows; the guide builds clean."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from tools.pages import ROOT, pages


def run(*options: str) -> list[str]:
    """Problems of all pages, as a reader meets them: without the settings of the test suite. In one process, which
    compiles once what several pages ask for."""
    env = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    command = [sys.executable, str(ROOT / "tools" / "pages.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=env)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow  # in CI as `make docs-check`
def test_code_blocks_of_the_readme_run_and_print_what_is_shown():
    assert run(str(ROOT / "README.md")) == []


@pytest.mark.slow  # in CI as `make docs-check`
def test_code_blocks_of_the_guide_too():
    assert run("--slow") == []


def test_no_block_hides_from_the_reader_of_fences_by_being_indented():
    for page in pages():
        assert not re.search(r"^[ \t]+```", page.read_text(encoding="utf-8"), re.MULTILINE), page


def test_a_wrong_line_a_failing_block_and_an_unknown_command_are_found(tmp_path):
    """The runner itself: what it must not let through."""
    text = "\n".join(
        [
            "```python",
            "print('three')",
            "1 / 0",
            "```",
            "",
            "```python",
            "print('one')",
            "```",
            "```text",
            "two",
            "```",
            "",
            "```console",
            "$ dmodels size",
            "$ rm -rf x",
            "```",
        ]
    )
    wrong = tmp_path / "wrong.md"
    wrong.write_text(text, encoding="utf-8")
    code = f"""
import json
from pathlib import Path
from tools import pages
pages.ROOT = Path({str(tmp_path)!r})
(pages.ROOT / "examples").mkdir()
print(json.dumps([str(p) for p in pages.check([Path({str(wrong)!r})])]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [problem.split(":")[1] for problem in found] == ["1", "10", "14", "15"], found
    assert "ZeroDivisionError" in found[0] and "two" in found[1] and "exit code 2" in found[2] and "rm" in found[3]


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The built guide's folder."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("the docs extra is not installed; `make docs` installs it")
    site, env = tmp_path_factory.mktemp("guide") / "site", os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=600)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-3000:]
    return site


@pytest.mark.slow
def test_the_search_finds_pages_that_are_opened_from_the_file_system(guide, chromium):
    page = chromium.new_page()
    page.goto((guide / "how-to" / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("headroom")
    page.wait_for_selector(".md-search-result__item")
    found = page.locator(".md-search-result__item h1").all_inner_texts()
    assert "Choose a threshold for two pools" in found


@pytest.mark.slow
def test_the_guide_builds_without_warnings(guide):
    latency = (guide / "explanation" / "latency.html").read_text(encoding="utf-8")
    assert "<math" in latency and "arithmatex" not in latency  # equations are drawn without any script
    site = "".join(p.read_text(encoding="utf-8") for p in guide.rglob("*.html"))
    fetched = re.findall(r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href)="(https?:[^"]+)"', site)
    assert fetched == []  # a reader without a network sees everything
