"""Compile for a GPU that is not here: XLA's CUDA compiler with a described device (needs the `cuda` extra, Linux).

The names used are private ones of jaxlib 0.10; another release may have moved them, which `devices` says.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from dmodels.solvers import blocks

#: Target -> (compute capability, SMs, shared memory of an SM and most of it for a block, memory bandwidth and size,
#: L2), by the vendor's tuning guides.
TARGETS = {
    "a100": ((8, 0), 108, 167_936, 166_912, 2.0e12, 8.5e10, 41_943_040),
    "h200": ((9, 0), 132, 233_472, 232_448, 4.8e12, 1.5e11, 52_428_800),
    "b200": ((10, 0), 148, 233_472, 232_448, 8.0e12, 1.9e11, 132_120_576),
}


class Compiled(NamedTuple):
    """What one program became: kernels, their largest use of registers and of shared memory, bytes spilled,
    and temporary memory."""

    kernels: int
    triton_kernels: int
    host_calls: int
    most_registers: int
    spilled_bytes: int
    most_shared_bytes: int
    temporary_bytes: int


def description(target: str) -> str:
    """XLA's text form of a device."""
    (major, minor), cores, shared, block, bandwidth, memory, cache = TARGETS[target]
    return f"""gpu_device_info {{ cuda_compute_capability {{ major: {major} minor: {minor} }}
        threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
        shared_memory_per_core: {shared} shared_memory_per_block_optin: {block} threads_per_core_limit: 2048
        core_count: {cores} fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
        block_dim_limit_z: 65535 memory_bandwidth: {int(bandwidth)} l2_cache_size: {cache} clock_rate_ghz: 1.98
        device_memory_size: {int(memory)} registers_per_core_limit: 65536 registers_per_block_limit: 65536 }}
        platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
        device_description_str: "sm_{major}.{minor}" """


def why_not() -> str:
    """Why nothing can be compiled for a GPU here; "" where it can."""
    if find_spec("jax_cuda12_plugin") is None:
        return "the CUDA compiler is not installed: pip install -e '.[cuda]'"
    return ""


def devices(target: str) -> Any:
    """Devices of a target that are only there to compile for."""
    import jax
    from jax._src import xla_bridge

    try:
        from jaxlib import _jax, xla_client

        if "cuda" not in xla_bridge._backend_factories:
            xla_bridge._discover_and_register_pjrt_plugins()
        if not xla_client.pjrt_plugin_initialized("cuda"):
            xla_client.initialize_pjrt_plugin("cuda")
        options = {"topology": "1x1x1", "target_config": description(target)}
        topology = _jax.get_default_c_api_topology("cuda", target, options)
        return topology._make_compile_only_devices()
    except (AttributeError, ImportError) as error:
        raise RuntimeError(
            f"jaxlib {jax.lib.__version__} has moved what compiles for a described device: {error}"
        ) from error


def compile_for(program: Any, arrays: list[Any], target: str) -> Compiled:
    """Compile a program of arrays of these shapes, and read what the assembler says of its kernels."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    whole = NamedSharding(Mesh(np.array(devices(target)), ("batch",)), PartitionSpec())
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    as_there = patch.object(blocks, "accelerators", lambda: (target,))
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder, as_there:
        lowered = jax.jit(program, in_shardings=(whole,) * len(shapes), out_shardings=whole).lower(*shapes)
        made = lowered.compile(compiler_options={"xla_dump_to": folder})
        text = made.as_text()
        calls = re.findall(r'custom_call_target="([^"]+)"', text)
        listing = [line for path in Path(folder).glob("*.ptx") for line in _assembled(path, target)]
        registers = [int(n) for n in re.findall(r"Used (\d+) registers", "\n".join(listing))]
        shared = [int(n) for n in re.findall(r"(\d+) bytes smem", "\n".join(listing))]
        spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", "\n".join(listing))]
    return Compiled(
        len(registers),
        sum("triton" in call for call in calls),
        sum("callback" in call for call in calls),
        max(registers, default=0),
        sum(spilled),
        max(shared, default=0),
        made.memory_analysis().temp_size_in_bytes,
    )


def _assembled(ptx: Path, target: str) -> list[str]:
    """What ptxas prints of a file of kernels."""
    spec = find_spec("nvidia.cuda_nvcc")
    if spec is None or ".entry" not in ptx.read_text():  # of programs that XLA folded to nothing it leaves empty files
        return []
    major, minor = TARGETS[target][0]
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    ptxas = Path(next(iter(spec.submodule_search_locations))) / "bin" / "ptxas"
    command = [ptxas, "-v", f"-arch={arch}", ptx, "-o", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
