"""Run every code block of Markdown pages, and compare what it prints with what the page shows.

    python tools/pages.py [--slow] [--write] [PAGE ...]

Without pages: README.md and all of docs/. `--slow` also runs the blocks tagged slow, `--write` puts what is printed now
in the place of shown lines that have changed. What the blocks may be:

* `python`: run in the order of the page, all in one namespace. A `text` block right after is what it prints.
* `console`: lines `$ dmodels ...`, `$ python FILE` or `$ make TARGET`, each followed by what it prints.
* `sh`: the same commands without the dollar, nothing shown.
* `toml`, `json`, `csv`, `yaml`, `bash` with `title="NAME"`: a file that the blocks after it may use. Without a title:
  shown only.

A shown line is the beginning of a printed one; `...` stands for any lines. A comment line before a block says how to
run it: `<!-- slow -->`, `<!-- exit 1 -->` (the code that is expected), `<!-- shown only: WHY -->`.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUN = ("python", "console", "sh")
FILES = ("toml", "json", "csv", "yaml", "bash")
_FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\s*$')
_RULES = re.compile(r"[\s━─┏┓┗┛┡┩┳┻╇┷┴┬├┤┼└┘┌┐╭╮╰╯]*")


@dataclass
class Block:
    """One fenced block: where it starts (the line of its fence, from 0), what it says and how it is run."""

    language: str
    title: str
    line: int
    text: list[str] = field(default_factory=list)
    tag: str = ""

    @property
    def slow(self) -> bool:
        """Run by `--slow` alone."""
        return self.tag == "slow"


@dataclass(frozen=True)
class Problem:
    """A block that failed or a shown line that is not printed."""

    page: str
    line: int  # from 1, as editors count
    says: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.says}"


def pages() -> list[Path]:
    """README.md and the pages of the guide."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(lines: list[str]) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    inside: Block | None = None
    tag = ""
    for i, line in enumerate(lines):
        if inside is not None:
            if line.startswith("```"):
                inside = None
            else:
                inside.text.append(line)
        elif line.startswith("```"):
            fence = _FENCE.match(line)
            if fence is None:
                raise ValueError(f"line {i + 1}: {line!r} is no fence that this reader knows")
            inside = Block(fence[1], fence[2] or "", i, tag=tag)
            found.append(inside)
            tag = ""
        elif line.strip():
            comment = re.fullmatch(r"<!-- (.*) -->", line.strip())
            tag = comment[1] if comment else ""
    return found


class Page:
    """One page being run: its lines, the namespace of its Python, and what went wrong so far."""

    def __init__(self, path: Path, slow: bool) -> None:
        self.path, self.slow = path, slow
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.blocks = blocks(self.lines)
        self.problems: list[Problem] = []
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self) -> None:
        """Run the page's blocks in order, in the current folder."""
        after = [*self.blocks[1:], None][: len(self.blocks)]
        for block, following in zip(self.blocks, after, strict=True):
            if block.language in FILES and block.title:
                Path(block.title).write_text("\n".join(block.text) + "\n", encoding="utf-8")
            if block.language not in RUN or block.tag.startswith("shown only: ") or (block.slow and not self.slow):
                continue
            if block.language == "python":
                printed = self._python(block)
                if following is not None and following.language == "text" and self._adjacent(block, following):
                    self._compare(following.line + 1, following.text, printed)
            else:
                for at, command, shown in _commands(block):
                    self._compare(at + 1, shown, self._command(block, at, command))

    def _adjacent(self, block: Block, following: Block) -> bool:
        between = self.lines[block.line + len(block.text) + 2 : following.line]
        return not any(line.strip() for line in between)

    def _fail(self, line: int, says: str) -> None:
        self.problems.append(Problem(str(self.path.relative_to(ROOT)), line + 1, says))

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * (block.line + 1) + "\n".join(block.text), str(self.path), "exec"), self.names)
        except Exception:
            self._fail(block.line, traceback.format_exc(limit=-3))
        return printed.getvalue()

    def _command(self, block: Block, at: int, command: str) -> str:
        expected = int(block.tag.removeprefix("exit ")) if block.tag.startswith("exit ") else 0
        words = shlex.split(command, comments=True)
        if words[0] == "dmodels":
            code, printed = _dmodels(words[1:])
        elif words[0] == "python":
            code, printed = _script(words[1:])
        elif words[0] == "make":
            # the environment is there; only what the target does after it is run, and only by --slow
            stamp = ["-o", ".venv/.installed", f"BIN={Path(sys.executable).parent}"]
            code, printed = _process(["make", "-C", str(ROOT), *([] if self.slow else ["-n"]), *stamp, *words[1:]])
        else:
            code, printed = -1, f"no rule runs {words[0]!r}"
        if code != expected:
            self._fail(at, f"$ {command}: exit code {code}, expected {expected}\n{printed[-1500:]}")
        return printed

    def _compare(self, first: int, shown: list[str], printed: str) -> None:
        there = [_plain(line) for line in printed.splitlines()]
        for at, part in _segments(shown):
            missing = [
                i
                for i, line in enumerate(part)
                if not _RULES.fullmatch(line)
                and not any(printed_line.startswith(_plain(line)) for printed_line in there)
            ]
            for i in missing:
                self._fail(first + at + i, f"shown but not printed: {part[i].strip()}")
            if missing and there:  # what is printed now: from the line that is most like the first one, as many lines
                start = 0 if at == 0 else max(range(len(there)), key=lambda k: _alike(there[k], _plain(part[0])))
                found = [line.rstrip() for line in printed.splitlines()[start : start + len(part)]]
                self.lines[first + at : first + at + len(part)] = found + [""] * (len(part) - len(found))


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _segments(shown: list[str]) -> Iterator[tuple[int, list[str]]]:
    """(place, lines) of each run of shown lines between `...` and empty lines."""
    start = 0
    for i, line in enumerate([*shown, "..."]):
        if line.strip() in ("", "..."):
            if i > start:
                yield start, shown[start:i]
            start = i + 1


def _plain(line: str) -> str:
    return " ".join(line.split())


def _commands(block: Block) -> Iterator[tuple[int, str, list[str]]]:
    """(its last line, command, what is shown of its output) for each command of a block; a backslash continues it."""
    at, command, shown = -1, "", []
    for i, line in enumerate(block.text, block.line + 1):
        starts = line.startswith("$ ") if block.language == "console" else bool(line.strip())
        if command.endswith("\\"):
            at, command = i, command[:-1] + line.strip()
        elif starts and not line.startswith("#"):
            if command:
                yield at, command, shown
            at, command, shown = i, line.removeprefix("$ "), []
        elif command:
            shown.append(line)
    if command:
        yield at, command, shown


def _dmodels(words: list[str]) -> tuple[int, str]:
    from dmodels.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["dmodels", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    finally:
        sys.argv = before
    return code, out.getvalue() + err.getvalue()


def _script(words: list[str]) -> tuple[int, str]:
    """`python FILE ...` as its own main module, in this process, which has imported and compiled much already."""
    out, before = io.StringIO(), sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    except Exception:
        return 1, out.getvalue() + traceback.format_exc(limit=-3)
    finally:
        sys.argv = before
    return 0, out.getvalue()


def _process(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout + done.stderr


def check(paths: list[Path], slow: bool = False, write: bool = False) -> list[Problem]:
    """Run pages, each in an empty folder in which `examples` is that of the project."""
    problems = []
    for path in paths:
        page = Page(path, slow)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("examples").symlink_to(ROOT / "examples")
            page.run()
        problems += page.problems
        if write and page.problems:
            path.write_text("\n".join(page.lines) + "\n", encoding="utf-8")
    return problems


def main() -> int:
    """Print the problems; the exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the problems as JSON")
    asked = parser.parse_args()
    os.environ.pop("JAX_ENABLE_X64", None)  # a reader's Python has none of the test suite's settings
    found = check([p.resolve() for p in asked.pages] or pages(), asked.slow, asked.write)
    print(json.dumps([str(p) for p in found]) if asked.json else "\n".join(map(str, found)) or "all blocks run")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
