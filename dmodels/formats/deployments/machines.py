"""GPUs as clusters name them, and the images that run engines: each stated once.

`product` is the node label of NVIDIA's GPU feature discovery; "" where it is not known, so that no pod waits for a node
that is called otherwise. `ray` is the accelerator type of ray.util.accelerators.
"""

from __future__ import annotations

from typing import NamedTuple

from dmodels.core.errors import InputError

#: Versions that are written: those whose argument tables the tests check against.
VLLM_VERSION = "v0.33.0"
SGLANG_VERSION = "v0.5.23"
TRTLLM_VERSION = "1.2.1"
DYNAMO_VERSION = "1.6.1"

#: Engine -> image, by the GPUs' vendor ("nvidia", "mi30x", "mi35x").
IMAGES = {
    "vllm": {
        "nvidia": f"vllm/vllm-openai:{VLLM_VERSION}",
        "mi30x": f"vllm/vllm-openai-rocm:{VLLM_VERSION}",
        "mi35x": f"vllm/vllm-openai-rocm:{VLLM_VERSION}",
    },
    "sglang": {
        "nvidia": f"lmsysorg/sglang:{SGLANG_VERSION}",
        "mi30x": f"lmsysorg/sglang:{SGLANG_VERSION}-rocm720-mi30x",
        "mi35x": f"lmsysorg/sglang:{SGLANG_VERSION}-rocm720-mi35x",
    },
    "trtllm": {"nvidia": f"nvcr.io/nvidia/tensorrt-llm/release:{TRTLLM_VERSION}"},
}
DYNAMO_IMAGES = {
    engine: f"nvcr.io/nvidia/ai-dynamo/{runtime}-runtime:{DYNAMO_VERSION}"
    for engine, runtime in {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrtllm"}.items()
}


class Machine(NamedTuple):
    """A GPU as a cluster sees it."""

    product: str = ""
    ray: str = ""
    vendor: str = "nvidia"
    host_gpus: int = 8  # GPUs under one operating system

    @property
    def resource(self) -> str:
        """The Kubernetes resource that counts such GPUs."""
        return "nvidia.com/gpu" if self.vendor == "nvidia" else "amd.com/gpu"


MACHINES = {
    "a100_40gb_sxm": Machine("NVIDIA-A100-SXM4-40GB", "A100"),
    "a100_80gb_sxm": Machine("NVIDIA-A100-SXM4-80GB", "A100"),
    "a100_40gb_pcie": Machine("NVIDIA-A100-PCIE-40GB", "A100"),
    "a100_80gb_pcie": Machine("NVIDIA-A100-80GB-PCIe", "A100"),
    "h100_sxm": Machine("NVIDIA-H100-80GB-HBM3", "H100"),
    "h100_pcie": Machine("NVIDIA-H100-PCIe", "H100"),
    "h100_nvl": Machine("NVIDIA-H100-NVL", "H100", host_gpus=2),
    "h20": Machine("NVIDIA-H20", "H20"),
    "h200_sxm": Machine("NVIDIA-H200", "H200"),
    "h200_nvl": Machine("NVIDIA-H200-NVL", "H200", host_gpus=4),
    "b200_sxm": Machine("NVIDIA-B200", "B200"),
    "gb200": Machine("NVIDIA-GB200", host_gpus=4),
    "gb300": Machine("NVIDIA-GB300", host_gpus=4),
    "l4": Machine("NVIDIA-L4", "L4"),
    "l40s": Machine("NVIDIA-L40S", "L40S"),
    "v100_sxm": Machine("Tesla-V100-SXM2-32GB", "V100"),
    "v100_16gb_sxm": Machine("Tesla-V100-SXM2-16GB", "V100"),
    "mi300x": Machine("", "AMD-Instinct-MI300X-OAM", "mi30x"),
    "mi325x": Machine("", "AMD-Instinct-MI325X-OAM", "mi30x"),
    "mi355x": Machine("", "", "mi35x"),
}


def machine(gpu: str) -> Machine:
    """A catalogue GPU as a cluster sees it; one that is not listed counts as an NVIDIA GPU in hosts of eight."""
    return MACHINES.get(gpu, Machine())


def gpu_of_product(product: str) -> str:
    """The catalogue's name of a node label; "" of one that is not listed."""
    return next((name for name, known in MACHINES.items() if product and known.product == product), "")


def gpu_of_ray(accelerator: str) -> str:
    """The catalogue's name of Ray's accelerator type, where it means one GPU; otherwise ""."""
    found = [name for name, known in MACHINES.items() if accelerator and known.ray == accelerator]
    return found[0] if len(found) == 1 else ""


def image(engine: str, gpu: str) -> str:
    """The image of an engine for a GPU."""
    vendor = machine(gpu).vendor
    if vendor not in IMAGES[engine]:
        known = [name for name, images in IMAGES.items() if vendor in images]
        raise InputError(f"--backend {engine}: does not run on {gpu}; accepted there are {', '.join(known)}")
    return IMAGES[engine][vendor]
