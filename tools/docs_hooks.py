r"""Hooks of `mkdocs build`: equations as MathML, tables of the commands' options, pages from files outside docs/.

Browsers draw MathML themselves, so the guide needs no script and no network. An equation that cannot be converted
fails the build.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
#: Page of the guide -> the file it is made from.
MADE = {"claims.md": "proofs/LEDGER.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)
_RELATIVE = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def on_config(config):
    """A page of the navigation for every format that `dmodels formats` lists; the version below every page."""
    from dmodels import __version__
    from dmodels.formats import table

    config["copyright"] = f"dmodels {__version__}"

    pages = [{row.name: f"formats/{row.name}.md"} for row in table()]
    for entry in config["nav"]:
        if "Formats" in entry:
            entry["Formats"] += pages
    return config


def on_files(files, config):
    """Add the pages that are made from files outside docs/; their links to files become the files' names."""
    for page, source in MADE.items():
        path = ROOT / source
        folder = path.parent.relative_to(ROOT)
        text = _RELATIVE.sub(lambda m, folder=folder: _named(m[1], folder / m[2]), path.read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Put the options of every command, the words of reports, and the table of formats or one of its rows, where a page
    asks for them in a comment. What people ask is answered by other pages before those of the reference."""
    if page.file.src_uri.startswith("reference/"):
        page.meta["search"] = {"boost": 0.2}
    made = {"options of every command": _commands, "words of reports": _words, "every format": _formats}
    for marker, lines in made.items():
        if f"<!-- {marker} -->" in markdown:
            markdown = markdown.replace(f"<!-- {marker} -->", "\n".join(lines()))
    return re.sub(r"<!-- the format (\S+) -->", lambda m: "\n".join(_format(m[1])), markdown)


def on_page_content(html, page, config, files):
    """Equations from TeX to MathML."""
    html = _BLOCK.sub(lambda m: _mathml(m[1], "block"), html)
    return _INLINE.sub(lambda m: _mathml(m[1], "inline"), html)


def _mathml(tex: str, display: str) -> str:
    return convert(html.unescape(tex).strip(), display=display)


def _named(text: str, path: Path) -> str:
    name = path.as_posix().split("#")[0]
    return text if text.startswith("`") else f"`{name}`" if (ROOT / name).exists() else text


def _formats() -> list[str]:
    from dmodels.formats import table

    lines = ["| format | what it is | read by | written by |", "|---|---|---|---|"]
    for row in table():
        ways = (
            f"`{row.read_by.replace(', ', '`, `')}`" if row.read_by else "",
            f"`{row.written_by}`" * bool(row.written_by),
        )
        lines.append(f"| [{row.name}]({row.name}.md) | {row.title} | {' | '.join(ways)} |")
    return lines


def _format(name: str) -> list[str]:
    from dmodels.formats import table

    row = next(row for row in table() if row.name == name)
    lines = [f"# {row.title}", "", f"The format `{name}` of `dmodels formats`."]
    for way, commands in (("Read", row.read_by), ("Written", row.written_by)):
        if commands:
            lines += ["", f"{way} by `{commands.replace(', ', '`, `')}`."]
    return lines


def _commands() -> list[str]:
    from dmodels.cli import COMMANDS
    from dmodels.cli.app import click_command

    lines = []
    for name, says in COMMANDS.items():
        found = click_command(name)
        lines += [f"## dmodels {name}", "", f"{says[0].upper()}{says[1:]}.", "", *_plain(found.help or ""), ""]
        lines += ["| option | | default |", "|---|---|---|"]
        for option in found.params:
            if option.name == "help":
                continue
            flags = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
            default = "" if option.default is None or callable(option.default) else f"`{option.default}`"
            says = (getattr(option, "help", "") or "").replace("|", "\\|")
            lines.append(f"| {flags} | {html.escape(says, quote=False)} | {default} |")
        lines.append("")
    return lines


def _words() -> list[str]:
    from dmodels.report.glossary import WORDS

    return [f"- **{word}**: {html.escape(meaning, quote=False)}" for word, meaning in WORDS.items()]


def _plain(text: str) -> list[str]:
    return [html.escape(line, quote=False) for line in text.strip().splitlines()]
