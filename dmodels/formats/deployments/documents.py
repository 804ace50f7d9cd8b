"""YAML as deployments are written in it: documents in the order of their fields, read without surprises."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmodels.core.errors import InputError
from dmodels.core.extras import needed
from dmodels.core.units import counted

from ..engines import dialect_of, server_of_words
from ..serving import Server, ServerPool, Serving
from .machines import gpu_of_product, machine

#: Node label of a GPU's type.
PRODUCT = "nvidia.com/gpu.product"
#: The port that every server listens on.
PORT = 8000
#: Prefix of the annotations in which a file keeps what its format has no field for.
OWN = "dmodels/"
#: A file beyond this is no deployment.
_MOST_CHARS = 4_000_000


def dump(serving: Serving, documents: Sequence[Mapping[str, Any]], notes: Iterable[str] = ()) -> str:
    """The text of documents, headed by what they deploy."""
    yaml = _yaml()

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Without anchors, which few people read."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    head = [f"# {line}" for line in (*summary(serving), *notes)]
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=120, default_flow_style=False)
    return "\n".join(head) + "\n" + text


def load(text: str, where: str) -> list[dict[str, Any]]:
    """The documents in a text; empty ones do not count."""
    yaml = _yaml()
    if len(text) > _MOST_CHARS:
        raise InputError(f"{where}: {len(text):,} characters; accepted are deployments up to {_MOST_CHARS:,}")
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found = [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())[:120]}") from None
    for document in found:
        if not isinstance(document, dict):
            raise InputError(f"{where}: a document is {str(document)[:40]!r}; accepted are objects")
    return found


def summary(serving: Serving) -> list[str]:
    """What a file deploys, a line a pool."""
    lines = [f"{serving.model} on {counted(serving.gpus, 'GPU')}, written by `dmodels plan --deploy`"]
    for pool in serving.pools:
        x = pool.server
        lines.append(f"{pool.name}: {pool.replicas} x {x.gpus} {pool.gpu} (tp{x.tp}pp{x.pp}dp{x.dp}ep{x.ep})")
    if serving.threshold_tokens is not None and len(serving.pools) == 2:
        short, long = (pool.name for pool in serving.pools)
        most = serving.threshold_tokens
        lines.append(f"route requests of up to {most} tokens, prompt and answer, to {short}, others to {long}")
    return lines


def own_annotations(serving: Serving, *pools: ServerPool) -> dict[str, str]:
    """What formats have no field for: each pool's GPU, the (first) pool's name, the router's threshold."""
    found = {f"{OWN}gpu.{pool.name}": pool.gpu for pool in pools}
    found |= {f"{OWN}pool": pools[0].name, f"{OWN}service": serving.name}
    if serving.threshold_tokens is not None:
        found[f"{OWN}threshold-tokens"] = str(serving.threshold_tokens)
    return {name: value for name, value in found.items() if value}


def gpu_of(given: Any, pool: str, product: Any) -> str:
    """The GPU of a pool: as the annotations say, or by the label of its nodes; "" where neither says."""
    own = given if isinstance(given, dict) else {}
    return str(own.get(f"{OWN}gpu.{pool}") or gpu_of_product(str(product or "")))


def from_annotations(given: Any) -> dict[str, Any]:
    """pool, service and threshold of annotations."""
    own = given if isinstance(given, dict) else {}
    text = own.get(f"{OWN}threshold-tokens")
    return {
        "pool": str(own.get(f"{OWN}pool", "")),
        "service": str(own.get(f"{OWN}service", "")),
        "threshold": None if text is None else count(text, f"{OWN}threshold-tokens"),
    }


def command_and_args(server: Server) -> dict[str, list[str]]:
    """`command` and `args` of a container; a settings file written in place needs bash."""
    spoken = dialect_of(server.engine)
    listens = ["--host", "0.0.0.0", "--port", str(PORT)]
    arguments = [*spoken.arguments(server), *listens]
    if any(word.startswith("<(") for word in arguments):
        words = [*spoken.program, *arguments]
        line = " ".join(word if word.startswith("<(") else shlex.quote(word) for word in words)
        return {"command": ["bash", "-c"], "args": [f"exec {line}"]}
    return {"command": list(spoken.program), "args": arguments}


#: What an image starts where a container states no command.
ENTRYPOINTS = {
    "vllm/vllm-openai": ("vllm", "serve"),
    "vllm/vllm-openai-rocm": ("vllm", "serve"),
    "rocm/vllm": ("vllm", "serve"),
}


def server_of(command: Any, args: Any, where: str, model: str = "", image: Any = None) -> Server:
    """The server that a container's command and arguments start, without where it listens.

    Without a command it is the image's own that the arguments are added to.
    """
    words = [*words_of(command, where), *words_of(args, where)]
    if not command and (start := _entrypoint(image)):
        words = [*start[: 1 if words[:1] == ["serve"] else None], *words]
    script = [word for word in words if re.search(r"\s", word) and re.search(r"vllm|sglang|trtllm", word)]
    if script:
        try:
            words = shell_words(script[0])
        except ValueError as error:
            raise InputError(f"{where}: command {script[0][:40]!r}: {error}") from None
    found = server_of_words(words, model)
    others = list(found.others)
    for flag in ("--host", "--port"):
        if flag in others:
            del others[others.index(flag) : others.index(flag) + 2]
    return Server(**{**vars(found), "others": tuple(others)})


def shell_words(line: str) -> list[str]:
    """A line for bash as words; what is written in place, `<(echo '...')`, stays one."""
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        held.append(match[0])
        return f"@{len(held) - 1}@"

    words = shlex.split(re.sub(r"<\(echo '[^']*'\)", hold, line), comments=True)
    return [held[int(word[1:-1])] if re.fullmatch(r"@\d+@", word) and held else word for word in words]


def container(serving: Serving, pool: ServerPool, name: str, image: str | None) -> dict[str, Any]:
    """A Kubernetes container of one server."""
    found: dict[str, Any] = {"name": name}
    if image is not None:
        found["image"] = image
    found |= command_and_args(pool.server)
    found["ports"] = [{"containerPort": PORT, "name": "http", "protocol": "TCP"}]
    found["env"] = environment(pool.server)
    found["resources"] = gpu_limits(pool)
    found["readinessProbe"] = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 10}
    return found


def environment(server: Server) -> list[dict[str, Any]]:
    """Variables of a container: the token by reference (never its value), and where the connector listens."""
    token = {"secretKeyRef": {"name": "hf-token", "key": "HF_TOKEN", "optional": True}}
    found: list[dict[str, Any]] = [{"name": "HF_TOKEN", "valueFrom": token}]
    if server.role != "serve" and server.engine == "vllm":
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        found.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
        found.append({"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "5600"})
    return found


def gpu_limits(pool: ServerPool) -> dict[str, Any]:
    """Limits of a container: the GPUs of one host."""
    each = str(pool.server.gpus // hosts(pool))
    return {"limits": {machine(pool.gpu).resource: each}, "requests": {machine(pool.gpu).resource: each}}


def node_selector(pool: ServerPool) -> dict[str, Any]:
    """Where such GPUs are, as a part of a pod's specification; {} where their label is not known."""
    product = machine(pool.gpu).product
    return {"nodeSelector": {PRODUCT: product}} if product else {}


def hosts(pool: ServerPool) -> int:
    """Hosts that one server spans."""
    return math.ceil(pool.server.gpus / machine(pool.gpu).host_gpus)


def on_one_host(serving: Serving, form: str) -> None:
    """The mistake of a server that spans hosts, in a format whose pods are on one."""
    for pool in serving.pools:
        if hosts(pool) > 1:
            raise InputError(
                f"--deploy {form}: one server of {pool.server.gpus} {pool.gpu} spans {hosts(pool)} hosts of "
                f"{machine(pool.gpu).host_gpus}; accepted are lines, llm-d, kserve, dynamo, or a smaller --tp"
            )


def count(value: Any, field: str, least: int = 0) -> int:
    """A whole number of a document."""
    try:
        found = int(str(value))
    except ValueError:
        found = -1
    if isinstance(value, bool) or not least <= found < 10**9:
        raise InputError(f"{field} is {str(value)[:40]!r}; accepted are whole numbers from {least}")
    return found


def label(text: str, most: int = 40) -> str:
    """A name as Kubernetes takes it: 'Llama-3.1-70B' is 'llama-3-1-70b'."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")
    return found if found[:1].isalpha() else f"m-{found}".strip("-")


def _entrypoint(image: Any) -> tuple[str, ...]:
    """What an image starts by itself, by its name without registry, tag and digest; (): not known."""
    *folders, name = str(image or "").partition("@")[0].split("/")
    return ENTRYPOINTS.get("/".join([*folders[-1:], name.partition(":")[0]]), ())


def words_of(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return [str(one) for one in value]
    raise InputError(f"{where}: command {str(value)[:40]!r}; accepted is a list of words")


def _yaml() -> Any:
    return needed("yaml", "a file of a deployment")
