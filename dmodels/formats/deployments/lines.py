"""Plain command lines, a script a pool: what starts one server, and how many of them there are."""

from __future__ import annotations

import re

from dmodels.core.errors import InputError

from ..engines import command_line, server_of_words
from ..serving import ServerPool, Serving
from .documents import count, hosts, shell_words, summary

_HEAD = re.compile(r"# (\S+): (\d+) x (\d+) (\S*) ?\(")
_THRESHOLD = re.compile(r"# route requests of up to (\d+) tokens")
_OF = re.compile(r"# service: (\S+)")


def write(serving: Serving) -> dict[str, str]:
    """One script with every pool's line."""
    lines = ["#!/usr/bin/env bash", *(f"# {line}" for line in summary(serving)), f"# service: {serving.name}", ""]
    for pool in serving.pools:
        lines.append(f"# {pool.name}: start {pool.replicas} of")
        if hosts(pool) > 1:
            lines.append(f"# each spans {hosts(pool)} hosts: start it on a Ray cluster (vLLM) or on every host")
        lines += [command_line(pool.server), ""]
    return {"serve.sh": "\n".join(lines[:-1]) + "\n"}


def read(text: str, where: str) -> Serving:
    """The pools of a script; replicas and GPUs where its remarks state them."""
    heads = {m[1]: m for m in map(_HEAD.match, text.splitlines()) if m}
    threshold = next((int(m[1]) for m in map(_THRESHOLD.match, text.splitlines()) if m), None)
    name = next((m[1] for m in map(_OF.match, text.splitlines()) if m), "deployment")
    joined = re.sub(r"\\\n", " ", text)
    pools: list[ServerPool] = []
    called, said = "", "1"
    for line in joined.splitlines():
        started = re.match(r"# (\S+): start (\d+) of", line)
        called, said = started.groups() if started else (called, said)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            server = server_of_words(shell_words(line))
        except ValueError as error:
            if isinstance(error, InputError) and "starts no engine" not in str(error):
                raise
            continue
        head = heads.get(called)
        replicas = count(head[2] if head else said, f"{where}: replicas", 1)
        pools.append(ServerPool(called or f"pool-{len(pools) + 1}", server, replicas, head[4] if head else ""))
    if not pools:
        raise InputError(f"{where}: no line starts an engine; accepted are vllm, sglang and trtllm-serve commands")
    return Serving(name, tuple(pools), threshold)
