"""Docker Compose: a service per server with its GPUs by number, a file for each kind of host.

Schema: the Compose specification (compose-spec/compose-spec).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from dmodels.core.errors import InputError

from ..paths import at
from ..serving import ServerPool, Serving
from .documents import PORT, command_and_args, count, dump, load, on_one_host, server_of, shell_words, words_of
from .machines import image, machine

#: Where `hosts`, the GPU and the pools are kept: fields that begin with x- are everybody's own.
_OWN = "x-dmodels"


def write(serving: Serving) -> dict[str, str]:
    """Files for `docker compose up`, each with the number of hosts that run it."""
    on_one_host(serving, "compose")
    kinds = _hosts(serving)
    texts = {}
    for i, (kind, number) in enumerate(kinds.items()):
        name = "compose.yaml" if len(kinds) == 1 else f"compose-{i + 1}.yaml"
        notes = [f"run this file on {number} host{'s' * (number > 1)}"]
        texts[name] = dump(serving, [_document(serving, kind, number)], notes)
    return texts


def _hosts(serving: Serving) -> dict[tuple[int, ...], int]:
    """{pool of each server on a host: such hosts}: the largest servers first, each into the first host with room."""
    free: list[int] = []
    held: list[tuple[int, ...]] = []
    order = sorted(range(len(serving.pools)), key=lambda i: -serving.pools[i].server.gpus)
    for i in order:
        pool = serving.pools[i]
        each, room = pool.server.gpus, machine(pool.gpu).host_gpus
        start = 0  # equal servers fill hosts in order
        for _ in range(pool.replicas):
            fits = (k for k in range(start, len(free)) if free[k] >= each and _gpu(serving, held[k]) == pool.gpu)
            start = next(fits, len(free))
            if start == len(free):
                free.append(room)
                held.append(())
            free[start] -= each
            held[start] += (i,)
    return dict(Counter(held))


def _gpu(serving: Serving, servers: tuple[int, ...]) -> str:
    return serving.pools[servers[0]].gpu


def _document(serving: Serving, kind: tuple[int, ...], number: int) -> dict[str, Any]:
    services, first = {}, 0
    for place, i in enumerate(kind):
        pool = serving.pools[i]
        services[f"{pool.name}-{place + 1}"] = _service(pool, place, first)
        first += pool.server.gpus
    own: dict[str, Any] = {"hosts": number, "gpu": _gpu(serving, kind)}
    if serving.threshold_tokens is not None:
        own["threshold_tokens"] = serving.threshold_tokens
    return {"name": serving.name, _OWN: own, "services": services}


def _service(pool: ServerPool, place: int, first: int) -> dict[str, Any]:
    started = command_and_args(pool.server)
    numbers = [str(first + k) for k in range(pool.server.gpus)]
    variables = {"HF_TOKEN": None}  # from the environment of who runs it
    found: dict[str, Any] = {"image": image(pool.server.engine, pool.gpu)}
    found |= {"entrypoint": started["command"], "command": [word.replace("$", "$$") for word in started["args"]]}
    found |= {"environment": variables, "ports": [f"{PORT + place}:{PORT}"], "ipc": "host"}
    if machine(pool.gpu).vendor == "nvidia":
        devices = [{"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}]
        found["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    else:
        found["devices"] = ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
        found["environment"] = variables | {"HIP_VISIBLE_DEVICES": ",".join(numbers)}
    return found


def _command(value: Any, where: str) -> list[Any]:
    """The words of a command, which may be one line; $$ is a dollar."""
    if isinstance(value, str):
        try:
            value = shell_words(value)
        except ValueError as error:
            raise InputError(f"{where}: command {value[:40]!r}: {error}") from None
    return [word.replace("$$", "$") for word in words_of(value, where)]


def read(text: str, where: str) -> Serving:
    """The pools of a file: services that start the same server are one pool, on as many hosts as it says."""
    documents = load(text, where)
    pools: dict[str, ServerPool] = {}
    own: dict[str, Any] = {}
    name = "deployment"
    for document in documents:
        own = at(document, _OWN) or {}
        if not isinstance(own, dict):
            raise InputError(f"{where}: {_OWN} is {str(own)[:40]!r}; accepted is an object")
        name = str(at(document, "name") or name)
        number = count(own.get("hosts", 1), f"{where}: hosts", 1)
        services = at(document, "services")
        for service, body in services.items() if isinstance(services, dict) else ():
            place = f"{where}: services.{service}"
            entry, command = (_command(at(body, field), place) for field in ("entrypoint", "command"))
            try:
                server = server_of(entry, command, place, image=at(body, "image"))
            except InputError as error:
                if "starts no engine" in str(error):
                    continue
                raise
            called = str(service).rpartition("-")[0] if own else str(service)
            known = pools.get(called)
            replicas = (known.replicas if known else 0) + number * count(
                at(body, "deploy", "replicas") or 1, f"{where}: services.{service}.deploy.replicas", 1
            )
            pools[called] = ServerPool(called, server, replicas, str(own.get("gpu", "")))
    threshold = own.get("threshold_tokens")
    threshold = None if threshold is None else count(threshold, f"{where}: threshold_tokens", 1)
    return Serving(name, tuple(pools.values()), threshold)
