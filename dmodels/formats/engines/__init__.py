"""The engines' command lines: the one place that knows their arguments, for what is printed, written and read."""

from __future__ import annotations

from collections.abc import Sequence

from dmodels.core.errors import InputError, unknown

from ..serving import Server
from .dialect import Argument, Dialect
from .limits import refusals
from .sglang import SGLANG
from .trtllm import TRTLLM
from .vllm import VLLM

#: Name of an engine -> its command line.
ENGINES: dict[str, Dialect] = {dialect.name: dialect for dialect in (VLLM, SGLANG, TRTLLM)}

__all__ = ["ENGINES", "Argument", "Dialect", "command_line", "dialect_of", "refusals", "server_of_words"]


def dialect_of(engine: str) -> Dialect:
    """The command line of an engine."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    return ENGINES[engine]


def command_line(server: Server) -> str:
    """What starts `server`, as one line for bash.

    >>> command_line(Server("vllm", "org/model", tp=2, max_model_len_tokens=8192))
    'vllm serve org/model --tensor-parallel-size 2 --max-model-len 8192'
    """
    return dialect_of(server.engine).line(server)


#: Words that start an engine, the longest first, and whether the model follows as a flag.
_STARTS = {
    ("python3", "-m", "sglang.launch_server"): "sglang",
    ("python", "-m", "sglang.launch_server"): "sglang",
    ("sglang", "serve"): "sglang",
    ("python3", "-m", "vllm.entrypoints.openai.api_server"): "vllm",
    ("python", "-m", "vllm.entrypoints.openai.api_server"): "vllm",
    ("vllm", "serve"): "vllm",
    ("trtllm-serve", "serve"): "trtllm",
    ("trtllm-serve",): "trtllm",
}


def server_of_words(words: Sequence[str], model: str = "") -> Server:
    """The server that a command line starts; words in front of the engine's name (`exec`, VAR=1) do not count.

    >>> server_of_words("vllm serve org/model -tp 2 --max-model-len 8k --enforce-eager".split()).others
    ('--enforce-eager',)
    """
    for start, name in _STARTS.items():
        for at in range(len(words) - len(start) + 1):
            if tuple(words[at : at + len(start)]) == start:
                return ENGINES[name].server(words[at + len(start) :], model)
    raise InputError(
        f"command {' '.join(words)[:60]!r}: starts no engine; accepted are "
        + ", ".join(" ".join(start) for start in _STARTS)
    )
