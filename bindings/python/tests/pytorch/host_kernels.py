"""PyTorch's operators on CUDA tensors, computed by the host: for a simulated machine, which can't run PyTorch's kernels.

Copies between host and device, between devices and into one's own memory are left to CUDA; everything else takes its tensors
to the host, computes there, and brings back what it wrote. Each operator waits for its stream, and those of PyTorch's C++
code (DDP, a backend's copies) go the same way in every thread that has taken over the state of the one that has `HostKernels`
on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# Nothing is computed: memory is made, or looked at in another way.
_LEFT_ALONE = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.detach.default,
    aten.record_stream.default,
    aten.set_.source_Storage_storage_offset,
    aten.resize_.default,
    aten.is_pinned.default,
    aten._pin_memory.default,
}


def _is_cuda(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _is_plain_copy(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether one run of bytes becomes another."""
    return (
        target.dtype == source.dtype
        and target.shape == source.shape
        and target.is_contiguous()
        and source.is_contiguous()
    )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from the tensor's first element to its last, whatever its strides."""
    size = 0
    if tensor.numel():
        size = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), tensor.storage_offset(), (size,), (1,))


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    flat = _flat(tensor)
    host = torch.empty(flat.shape, dtype=tensor.dtype, device="cpu")
    host.copy_(flat)
    return host.as_strided(tensor.shape, tensor.stride())


def _to_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    flat = _flat(host)
    memory = torch.empty(flat.shape, dtype=host.dtype, device=device)
    memory.copy_(flat)
    return memory.as_strided(host.shape, host.stride())


class HostKernels(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = [value for value in flat if _is_cuda(value)]
        target = kwargs.get("device")
        device = torch.device(target) if target is not None else None
        if not tensors and (device is None or device.type != "cuda"):
            return func(*args, **kwargs)
        if func in _LEFT_ALONE or func.is_view or func.namespace not in ("aten", "c10d_functional"):
            return func(*args, **kwargs)
        if func is aten.copy_.default and _is_plain_copy(args[0], args[1]):
            return func(*args, **kwargs)
        return self._compute(func, flat, spec, tensors, device)

    def _compute(self, func: Any, flat: list, spec: Any, tensors: list, device: torch.device | None) -> Any:
        if device is None:
            device = tensors[0].device
        elif device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        hosts = {id(tensor): _to_host(tensor) for tensor in tensors}
        swapped = [
            hosts[id(value)] if _is_cuda(value) else torch.device("cpu") if isinstance(value, torch.device) else value
            for value in flat
        ]
        args, kwargs = pytree.tree_unflatten(swapped, spec)
        results = func(*args, **kwargs)
        given = {id(host): tensor for tensor in tensors for host in [hosts[id(tensor)]]}
        for tensor in self._written(func, flat, spec):
            _flat(tensor).copy_(_flat(hosts[id(tensor)]))

        def back(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in given:
                return given[id(value)]
            return value if device.type == "cpu" or value.device.type == "cuda" else _to_device(value, device)

        return pytree.tree_map(back, results)

    @staticmethod
    def _written(func: Any, flat: list, spec: Any) -> list[torch.Tensor]:
        args, kwargs = pytree.tree_unflatten(flat, spec)
        written = []
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written += [tensor for tensor in pytree.tree_leaves(value) if _is_cuda(tensor)]
        return written
