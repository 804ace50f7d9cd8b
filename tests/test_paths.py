"""Files that documentation, docstrings and data name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: A path of the project that ends in a suffix; not one inside a longer path or an address.
NAMED = re.compile(
    r"(?<![\w./-])(?:benchmarks|tools|tests|proofs|examples|docs)/[\w./-]*\.(?:py|md|csv|txt|toml|png)\b"
)
MODULE = re.compile(r"python -m ((?:benchmarks|tools|proofs)(?:\.\w+)*)")
FOLDERS = ("dmodels", "docs", "tests", "proofs", "benchmarks", "tools", "examples")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".csv")]
#: Names that instructions leave open.
OPEN = ("TEST.py", "NAME.py")


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_no_dead_path(folder: str) -> None:
    files = [path for path in FILES if path.is_relative_to(ROOT / folder)] if folder != "." else ROOT.glob("*.md")
    dead = []
    for path in files:
        if path.name in ("test_mutants.py", "CHANGELOG.md"):
            continue
        text = path.read_text(encoding="utf-8")
        for named in NAMED.findall(text):
            if not (ROOT / named).exists() and not any(word in named for word in OPEN):
                dead.append(f"{path.relative_to(ROOT)}: {named}")
        for module in MODULE.findall(text):
            place = ROOT / module.replace(".", "/")
            if not (place.is_dir() or place.with_suffix(".py").exists()):
                dead.append(f"{path.relative_to(ROOT)}: python -m {module}")
    assert dead == []
