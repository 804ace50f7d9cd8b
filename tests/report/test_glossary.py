"""Words of a page that explain themselves."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from dmodels.report.glossary import WORDS, entries, linked


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.said = ""

    def handle_data(self, data):
        self.said += data


def text_of(markup):
    reader = _Text()
    reader.feed(markup)
    return reader.said


PAGE = (
    "<h2>KV and slots</h2><p>Slots and slots; the KV cache, KV-cache, a slot, tp4pp1dp1ep1.</p>"
    '<pre>router: requests in flight</pre><table><tr><td data-name="TTFT P99">in flight</td></tr></table>'
    "<svg><text>TPOT</text></svg><br/><p>TPOT</p>"
)


def test_the_first_use_of_a_word_is_a_link_and_the_text_stays_as_it_was():
    seen = set()
    made = linked(PAGE, seen)
    assert text_of(made) == text_of(PAGE)
    assert seen == {"slots", "KV", "layout", "in flight", "TPOT"}
    assert len(re.findall("<a ", made)) == len(seen)
    for opaque in ("<h2>KV and slots</h2>", "<pre>router: requests in flight</pre>", "<svg><text>TPOT</text></svg>"):
        assert opaque in made
    assert 'data-name="TTFT P99"' in made


def test_every_link_has_its_entry():
    seen = set()
    targets = set(re.findall(r'href="#([^"]+)"', linked(" ".join(WORDS), seen)))
    assert targets == set(re.findall(r'<dt id="([^"]+)"', entries(seen))) and len(targets) == len(WORDS)


def test_a_word_that_was_linked_before_is_left():
    assert linked("<p>slots</p>", {"slots"}) == "<p>slots</p>"


def test_every_word_has_its_own_meaning():
    """The part without which it would be another word's."""
    own = {
        "80 % interval": "Four of five measured values",
        "SLO": "Service level objective",
        "TTFT": "first output token",
        "TPOT": "/ (output tokens - 1)",
        "E2E": "last output token",
        "P99": "99 of 100",
        "in flight": "at the same time",
        "slots": "can have in flight",
        "headroom": "may grow before",
        "saturation": "only grows",
        "knee": "1 % more load",
        "instance": "One running engine",
        "layout": "tensor parallelism",
        "pool": "share a queue",
        "prefill": "reads the prompt",
        "decode": "one token a step",
        "KV": "Keys and values",
        "calibrated": "From measurements",
        "assumed": "nothing was measured",
        "replayed": "request by request",
    }
    assert own.keys() == WORDS.keys()
    for word, part in own.items():
        assert [other for other, meaning in WORDS.items() if part in meaning] == [word]
