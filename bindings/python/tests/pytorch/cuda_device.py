"""This rank's device, for programs that run on GPUs and on simulated ones."""

from __future__ import annotations

import os

import torch


def take() -> torch.device:
    """The device, current and that of new tensors; where it is simulated, the host computes for it."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if os.environ.get("PACELINE_TEST_TORCH_CUDA") == "simulated":
        import host_kernels

        host_kernels.install()
    torch.set_default_device(device)
    return device
