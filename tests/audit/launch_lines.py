"""Launch lines read back with nothing of dmodels: a shell's words, the engines' published arguments, their meaning."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from tests.audit.findings import Findings

#: Engine -> how its server is started.
PROGRAMS = {
    "vllm": ["vllm", "serve"],
    "sglang": ["python3", "-m", "sglang.launch_server"],
    "trtllm": ["trtllm-serve"],
}
TYPES = {"int": r"-?\d+", "float": r"-?\d+(\.\d+)?", "switch": "", "json": r"\{.*\}|<\(.*\)", "str": ".+"}


@cache
def arguments(engine: str) -> dict[str, Any]:
    """The engine's own table of arguments."""
    path = Path(__file__).parents[1] / "formats" / "arguments.json"
    return json.loads(path.read_text(encoding="utf-8"))[engine]["arguments"]


def words(line: str) -> list[str]:
    """As a shell splits it; `<( ... )` is one word."""
    inner = re.findall(r"<\(.*?\)(?=\s|$)", line)
    for k, found in enumerate(inner):
        line = line.replace(found, f"@{k}@")
    return [inner[int(word[1:-1])] if re.fullmatch(r"@\d+@", word) else word for word in shlex.split(line)]


def flags(line: str, engine: str, findings: Findings) -> dict[str, str]:
    """Flag -> value of a line, each held against the engine's table; "model" is what is served."""
    program, split = PROGRAMS[engine], words(line)
    findings.same("the program of a launch line", split[: len(program)], program)
    rest, known, found = split[len(program) :], arguments(engine), {}
    if rest and not rest[0].startswith("-"):
        found["model"] = rest.pop(0)
    while rest:
        flag = rest.pop(0)
        if flag not in known:
            findings.hold(False, f"{flag} is no argument of {engine}: {line}")
            break
        value = "" if known[flag]["type"] == "switch" else rest.pop(0)
        findings.hold(bool(re.fullmatch(TYPES[known[flag]["type"]], value)), f"{flag} {value!r} is no {known[flag]}")
        findings.hold(flag not in found, f"{flag} stands twice: {line}")
        found[flag] = value
    found.setdefault("model", found.get("--model-path", ""))
    return found


def meaning(line: str, engine: str, findings: Findings) -> dict[str, Any]:
    """What a line starts: degrees, limits and role, in one vocabulary for the three engines."""
    found = flags(line, engine, findings)
    whole = lambda flag, default=None: int(found[flag]) if flag in found else default
    if engine == "vllm":
        tp, dp = whole("--tensor-parallel-size", 1), whole("--data-parallel-size", 1)
        transfer = json.loads(found.get("--kv-transfer-config", "{}"))
        role = {"kv_producer": "prefill", "kv_consumer": "decode", None: "serve"}[transfer.get("kv_role")]
        limits = ("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens")
        pp, ep, ranks = whole("--pipeline-parallel-size", 1), "--enable-expert-parallel" in found, 1
    elif engine == "sglang":
        dp = whole("--attn-dp-size", 1)
        tp, pp, ep, ranks = whole("--tp-size", 1) // dp, whole("--pp-size", 1), whole("--ep-size", 1) > 1, dp
        role = found.get("--disaggregation-mode", "serve")
        limits = ("--context-length", "--max-running-requests", "--chunked-prefill-size")
    else:
        more = json.loads(found.get("--extra_llm_api_options", "<(echo '{}')")[len("<(echo '") : -2])
        gpus = whole("--tp_size", 1)
        dp = gpus if more.get("enable_attention_dp") else 1
        tp, pp, ep, ranks = gpus // dp, whole("--pp_size", 1), whole("--ep_size", 1) > 1, 1
        hands_over, first = "cache_transceiver_config" in more, more.get("disable_overlap_scheduler")
        role = ("prefill" if first else "decode") if hands_over else "serve"
        limits = ("--max_seq_len", "--max_batch_size", "--max_num_tokens")
    context, seqs, batched = (whole(flag) for flag in limits)
    return {
        "model": found["model"],
        "parallel": {"tp": tp, "pp": pp, "dp": dp},
        "experts": ep,
        "role": role,
        "context_tokens": context,
        "seqs_of_a_rank": seqs / ranks,
        "tokens_of_a_step": batched / ranks,
    }
