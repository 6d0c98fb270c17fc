"""The backend ``paceline`` of ``torch.distributed``.

Importing this registers it: ``torch.distributed.init_process_group("paceline")`` and
``new_group(backend="paceline")`` work then, and so does what is built on them. ``docs/torch.md`` has the rest.

The backend is in C++ and is compiled for the PyTorch that is installed, when the first group is made, or before by
``python -m paceline.torch build``.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.distributed as dist

from paceline import _paceline
from paceline.torch._build import BuildError, build

__all__ = ["BuildError", "build", "is_registered"]

_NAME = "paceline"
_extension: types.ModuleType | None = None


def _load() -> types.ModuleType:
    global _extension
    if _extension is None:
        extension = build()
        extension.load(_paceline.__file__, _paceline.has_cuda)
        _extension = extension
    return _extension


def _create(options: Any, backend_options: Any) -> Any:
    """What ``torch.distributed`` calls for each group that this rank is in."""
    timeout = getattr(backend_options, "_timeout", None) or options.timeout
    return _load().create(
        options.store,
        options.group_rank,
        options.group_size,
        timeout.total_seconds(),
        options.group_id,
        list(options.global_ranks_in_group),
    )


def is_registered() -> bool:
    """Whether ``torch.distributed`` knows the backend."""
    return _NAME in dist.Backend.backend_list


def _devices() -> list[str]:
    # Where PyTorch has CUDA tensors and the library can't take them, the backend says so better than PyTorch, which
    # would know no backend for them.
    return ["cpu", "cuda"] if torch.backends.cuda.is_built() else ["cpu"]


if dist.is_available() and not is_registered():
    dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=_devices())
