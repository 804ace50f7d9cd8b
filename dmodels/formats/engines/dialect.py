"""An engine's command line as data: which argument states which setting, and how a value is written and read."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmodels.core.errors import InputError

from ..serving import Server


class Argument(NamedTuple):
    """One argument; a switch has no value."""

    flag: str
    value: str | None = None


def stated(values: Mapping[str, Any]) -> list[Argument]:
    """The arguments of {flag: value}: None, False and "" are not written, True is a switch, shares have two digits.

    >>> stated({"--tp": 2, "--pp": None, "--ep": True, "--share": 0.9})
    [Argument(flag='--tp', value='2'), Argument(flag='--ep', value=None), Argument(flag='--share', value='0.90')]
    """
    return [
        Argument(flag, None if value is True else f"{value:.2f}" if isinstance(value, float) else str(value))
        for flag, value in values.items()
        if value is not None and value is not False and value != ""
    ]


def degree(value: int) -> int | None:
    """A degree of parallelism, where it is one."""
    return value if value > 1 else None


@dataclass(frozen=True)
class Dialect:
    """How one engine is started. `write` and `read` are each other's inverse on what `write` gives."""

    name: str
    program: tuple[str, ...]
    model_flag: str  # "": the model is an argument without a flag
    write: Callable[[Server], list[Argument]]
    read: Callable[[dict[str, str | None]], dict[str, Any]]  # takes the flags that it knows out of the dict
    limits: Callable[[Server], list[str]]  # what this engine alone refuses
    underscores: bool = False  # in its flags

    def arguments(self, server: Server) -> list[str]:
        """Words behind the program that start `server`."""
        model = [self.model_flag, server.model] if self.model_flag else [server.model]
        return [*model, *(word for one in self.write(server) for word in one if word is not None), *server.others]

    def line(self, server: Server) -> str:
        """The command line, quoted for bash; a file of settings is written in place, `<(echo '...')`."""
        words = [*self.program, *self.arguments(server)]
        return " ".join(word if word.startswith("<(echo ") else shlex.quote(word) for word in words)

    def server(self, words: Sequence[str], model: str = "") -> Server:
        """The server that `words`, behind the program, start; `model` where the words do not name it."""
        flags, plain = split(without_secrets(words))
        flags = flags if self.underscores else dashed(flags)
        named = flags.pop(self.model_flag, None) if self.model_flag else (plain.pop(0) if plain else None)
        named = named or flags.pop("--model", None) or model
        if not named:
            raise InputError(f"{self.name}: the command names no model; accepted: {self.model_flag or 'a model'} NAME")
        settings = self.read(flags)
        left = [word for flag, value in flags.items() for word in (flag, value) if word is not None]
        return Server(self.name, named, **settings, others=tuple([*plain, *left]))


#: Flags whose values are secrets, in the spellings of all engines.
SECRETS = ("--api-key", "--admin-api-key", "--hf-token", "--auth-token", "--password", "--ssl-keyfile-password")


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words but flags that hold a secret and their values (vLLM takes several keys): none is kept or written.

    >>> without_secrets("vllm serve m --api-key sk-1 sk-2 --tensor-parallel-size 2 --hf_token=hf_1".split())
    ['vllm', 'serve', 'm', '--tensor-parallel-size', '2']
    """
    kept: list[str] = []
    hidden = False
    for word in words:
        if word.startswith("-") and not _is_number(word):
            flag, equals, _ = word.partition("=")
            hidden = flag.replace("_", "-") in SECRETS
            if hidden and equals:
                hidden = False
                continue
        if not hidden:
            kept.append(word)
    return kept


def split(words: Sequence[str]) -> tuple[dict[str, str | None], list[str]]:
    """({flag: value}, words without a flag). `--flag=value` and `--flag value` are the same; of repeats the last."""
    flags: dict[str, str | None] = {}
    plain: list[str] = []
    rest = iter(range(len(words)))
    for i in rest:
        word = words[i]
        if not (word.startswith("-") and not _is_number(word)):
            plain.append(word)
            continue
        flag, equals, value = word.partition("=")
        if equals:
            flags[flag] = value
        elif i + 1 < len(words) and (not words[i + 1].startswith("-") or _is_number(words[i + 1])):
            flags[flag] = words[next(rest)]
        else:
            flags[flag] = None
    return flags, plain


def dashed(flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Flags as vLLM and SGLang list them; both take underscores, too. TensorRT-LLM's have nothing else.

    >>> dashed({"--max_model_len": "8k", "-tp": "2"})
    {'--max-model-len': '8k', '-tp': '2'}
    """
    return {flag.replace("_", "-"): value for flag, value in flags.items()}


class Flags:
    """Takes known flags out of a command line's, with their values read."""

    def __init__(self, flags: dict[str, str | None]) -> None:
        self.flags = flags

    def whole(self, *names: str, default: int | None = None) -> Any:
        """A whole number from 1, under any of its spellings."""
        for name, text in self._take(*names):
            value = _number(text)
            if not (value >= 1 and float(value).is_integer()):
                raise InputError(f"{name} is {text!r}; accepted are whole numbers from 1")
            return int(value)
        return default

    def share(self, *names: str) -> float | None:
        """A share of 1."""
        for name, text in self._take(*names):
            value = _number(text)
            if not 0 < value <= 1:
                raise InputError(f"{name} is {text!r}; accepted are shares above 0 up to 1")
            return value
        return None

    def text(self, *names: str) -> str:
        """A word; "" where the flag is not there."""
        for name, text in self._take(*names):
            if text is None:
                raise InputError(f"{name} has no value; accepted is a word")
            return text
        return ""

    def switch(self, *names: str) -> bool:
        """Whether a flag without a value is there."""
        return any(True for _ in [*self._take(*names)])

    def drop(self, *names: str) -> None:
        """Flags that another setting implies."""
        for _ in self._take(*names):
            pass

    def settings(self, *names: str) -> dict[str, Any]:
        """An object in JSON; {} where the flag is not there."""
        for name, text in self._take(*names):
            text = (text or "").removeprefix("<(echo '").removesuffix("')")
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                raise InputError(f"{name} is {text[:60]!r}; accepted is an object in JSON")
            return found
        return {}

    def _take(self, *names: str) -> Iterator[tuple[str, str | None]]:
        for name in [n for n in names if n in self.flags]:
            yield name, self.flags.pop(name)


def _number(text: str | None) -> float:
    """Also "8k" and "8K" as vLLM reads them: thousands, and 1,024."""
    text = (text or "").strip()
    scale = {"k": 1e3, "K": 1024.0, "m": 1e6, "M": 1024.0**2}.get(text[-1:], 1.0)
    try:
        value = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _is_number(word: str) -> bool:
    return math.isfinite(_number(word))
