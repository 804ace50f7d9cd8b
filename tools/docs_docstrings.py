"""Docstrings as Markdown: doctests and indented tables become code blocks, and TeX blocks `$$` stand alone."""

from __future__ import annotations

import griffe


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """`text` with doctests and lists of aligned columns fenced.

    >>> print(markdown("Twice.\\n\\n>>> 2 * 2\\n4"))
    Twice.
    <BLANKLINE>
    ```pycon
    >>> 2 * 2
    4
    ```
    """
    out: list[str] = []
    fence = ""  # the kind of block that is open
    for line in text.splitlines():
        kind = _kind(line, fence)
        if kind != fence:
            if fence:
                out += ["```", ""]
            if kind:
                out += [*([""] if out and out[-1].strip() else []), f"```{kind}"]
            fence = kind
        out.append(line)
    return "\n".join(out + (["```"] if fence else []))


def _kind(line: str, fence: str) -> str:
    """The kind of block that a line belongs to: a doctest runs to the next empty line."""
    if line.startswith(">>>") or (fence == "pycon" and line.strip()):
        return "pycon"
    columns = "  " in line.strip()  # name  meaning
    indented = line.startswith("    ") and bool(line.strip())
    return "text" if columns or indented else ""
