"""The same series from a Prometheus server: one question for each engine, over the last hours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from dmodels.core.errors import InputError

from .names import COUNTERS, GAUGES, HISTOGRAMS

#: Samples of a series that one question asks for; Prometheus answers at most 11,000.
SAMPLES = 1_000
WAIT_S = 30.0


def is_url(path: object) -> bool:
    """Whether a "file" is a server."""
    return isinstance(path, str) and path.startswith(("http://", "https://"))


def ask(url: str, hours: float) -> Iterator[Any]:
    """Answers of `query_range` about each engine's metrics over the last `hours`."""
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.password:
        raise InputError(f"{url[:80]}: accepted is http://HOST:PORT of a Prometheus server, without a password")
    now = time.time()
    step = max(hours * 3600.0 / SAMPLES, 15.0)
    for engine in ("vllm:", "sglang:", "dynamo_"):
        window = {
            "query": _query(engine),
            "start": f"{now - 3600.0 * hours:.0f}",
            "end": f"{now:.0f}",
            "step": f"{step:.0f}",
        }
        question = f"{url.rstrip('/')}/api/v1/query_range?{urlencode(window)}"
        try:
            with urlopen(question, timeout=WAIT_S) as answer:
                yield json.load(answer)
        except (URLError, TimeoutError, ValueError) as error:
            raise InputError(
                f"{url}: no answer of Prometheus ({str(error)[:80]}); is it the server's address?"
            ) from None


def _query(engine: str) -> str:
    histograms = [f"{name}_(bucket|sum|count)" for names in HISTOGRAMS.values() for name in names]
    counters = [f"{name}_total" for names in COUNTERS.values() for name in names]
    gauges = [name for names in GAUGES.values() for name in names]
    known = [name for name in (*histograms, *counters, *gauges) if name.startswith(engine)]
    return f'{{__name__=~"{"|".join(dict.fromkeys(known))}"}}'
