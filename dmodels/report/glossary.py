"""The words of a plan, each explained in a sentence, and linked where a page uses them first."""

from __future__ import annotations

import re
from html import escape

#: What pages and tables say -> what it means. Linked in this order, longer words before those that they contain.
WORDS: dict[str, str] = {
    "80 % interval": "Four of five measured values lie within it, as judged on measurements that the model was not "
    "fitted to.",
    "SLO": "Service level objective: the latency that was promised, for the percentile of requests that was stated.",
    "TTFT": "Time to first token: from a request's arrival until its first output token, waiting included.",
    "TPOT": "Time per output token after the first: (E2E - TTFT) / (output tokens - 1).",
    "E2E": "End-to-end latency: from a request's arrival until its last output token.",
    "P99": "The value that 99 of 100 requests do not exceed.",
    "in flight": "Requests that an instance works on at the same time; its batch, for decoding.",
    "slots": "How many requests an instance can have in flight: bound by KV memory and by the engine's limit.",
    "headroom": "How much the load may grow before an SLO breaks.",
    "saturation": "The load at which requests arrive as fast as they can be served; beyond it the queue only grows.",
    "knee": "The load from which 1 % more load costs more than 1 % more TTFT.",
    "instance": "One running engine on the GPUs of one layout; it serves whole requests, or one phase of them.",
    "layout": "How an instance is laid over GPUs: tp4pp1dp1ep1 is tensor parallelism over 4 GPUs, no pipeline, no "
    "copies of the attention layers, no spread experts.",
    "pool": "Instances of one layout that share a queue of requests.",
    "prefill": "The phase that reads the prompt and makes the first token; bound by computing.",
    "decode": "The phase that makes one token a step for every request in flight; bound by memory bandwidth.",
    "KV": "Keys and values of attention, kept in GPU memory for every token of every request in flight.",
    "calibrated": "From measurements, with the error on data that were not used for the fit.",
    "assumed": "From data sheets or relatives; nothing was measured on it.",
    "replayed": "Simulated request by request, with the arrival times and lengths of the trace.",
}
_ALIKE = {"slot": "slots", "instances": "instance", "pools": "pool", "layouts": "layout", "SLOs": "SLO"}
_LAYOUT = re.compile(r"tp\d+pp\d+dp\d+ep\d+")
_WORD = re.compile(
    r"(?<![\w-])("
    + "|".join([_LAYOUT.pattern, *map(re.escape, sorted([*WORDS, *_ALIKE], key=len, reverse=True))])
    + r")(?![\w-])"
)
_PIECES = re.compile(r"(<[^>]+>)")
_OPAQUE = {"pre", "svg", "style", "script", "h1", "h2", "title", "summary", "a"}


def linked(markup: str, seen: set[str] | None = None) -> str:
    """HTML with each word's first use as a link to its explanation; headings, pictures and command lines are left.

    `seen` collects the words, and those in it already are not linked again.
    """
    seen = set() if seen is None else seen
    inside, made = 0, []
    for piece in _PIECES.split(markup):
        if piece.startswith("<"):
            name = piece.strip("</>").split()[0].lower()
            if name in _OPAQUE and not piece.endswith("/>"):
                inside += -1 if piece.startswith("</") else 1
        elif not inside:
            piece = _WORD.sub(lambda found: _link(found[1], seen), piece)
        made.append(piece)
    return "".join(made)


def entries(words: set[str]) -> str:
    """The explanations of `words`, as a list of definitions that `linked` points to."""
    listed = "\n".join(
        f'<dt id="{_anchor(word)}">{escape(word)}</dt><dd>{escape(WORDS[word])}</dd>' for word in WORDS if word in words
    )
    return f'<dl class="words">\n{listed}\n</dl>'


def _link(text: str, seen: set[str]) -> str:
    word = "layout" if _LAYOUT.fullmatch(text) else _ALIKE.get(text, text)
    if word in seen:
        return text
    seen.add(word)
    return f'<a class="word" href="#{_anchor(word)}" title="{escape(WORDS[word], quote=True)}">{text}</a>'


def _anchor(word: str) -> str:
    return "word-" + re.sub(r"\W+", "-", word.lower())
