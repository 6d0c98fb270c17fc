"""PyTorch's operators on CUDA tensors, computed by the host: for a simulated machine, which has no PyTorch kernels.

Copies of bytes are left to CUDA, in the current stream; everything else takes its tensors to the host, computes there,
and brings back what it wrote. Operators that PyTorch's C++ code calls, in whichever thread, go the same way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Nothing is computed: memory is made, looked at in another way, or copied to a number.
_LEFT_ALONE = (
    "empty",
    "new_empty",
    "set_",
    "resize_",
    "record_stream",
    "is_pinned",
    "_pin_memory",
    "_local_scalar_dense",
)

_library: torch.library.Library | None = None


def install() -> None:
    """Takes the place of all of PyTorch's kernels for CUDA, for as long as the process lives."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::") or not torch._C._dispatch_has_kernel_for_dispatch_key(full, "CUDA"):
            continue
        name, _, overload = full.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, name), overload or "default")
        if operator.is_view or name.startswith(_LEFT_ALONE):
            continue
        _library.impl(operator, _on_host(operator), "CUDA", allow_override=True)
    _library.impl(torch.ops.aten.copy_.default, _copy, "CUDA", allow_override=True)


def _is_cuda(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _extent(tensor: torch.Tensor) -> int:
    """How many elements lie from the first to the last, whatever the strides."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _bytes(target: torch.Tensor, source: torch.Tensor, elements: int) -> None:
    """Copies so many elements as they lie, as work of the current stream of the device."""
    device = target.device if _is_cuda(target) else source.device
    stream = torch.cuda.current_stream(device)
    runtime = ctypes.CDLL(None)
    size = elements * target.element_size()
    code = runtime.cudaMemcpyAsync(
        ctypes.c_void_p(target.data_ptr()),
        ctypes.c_void_p(source.data_ptr()),
        ctypes.c_size_t(size),
        ctypes.c_int(4),
        ctypes.c_void_p(stream.cuda_stream),
    )
    assert code == 0, f"cudaMemcpyAsync of {size} bytes gave {code}"
    if not (_is_cuda(target) and _is_cuda(source)) and not (target.is_pinned() or source.is_pinned()):
        stream.synchronize()


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    host = torch.empty(_extent(tensor), dtype=tensor.dtype, device="cpu")
    if host.numel():
        _bytes(host, tensor, host.numel())
    return host.as_strided(tensor.shape, tensor.stride())


def _to_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    memory = torch.empty(_extent(host), dtype=host.dtype, device=device)
    if memory.numel():
        _bytes(memory, host, memory.numel())
    return memory.as_strided(host.shape, host.stride())


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    is_plain = target.dtype == source.dtype and target.shape == source.shape
    if is_plain and target.is_contiguous() and source.is_contiguous() and target.is_conj() == source.is_conj():
        if target.numel():
            _bytes(target, source, target.numel())
            if not non_blocking and not (_is_cuda(target) and _is_cuda(source)):
                torch.cuda.current_stream(target.device if _is_cuda(target) else source.device).synchronize()
        return target
    values = _to_host(source) if _is_cuda(source) else source
    if not _is_cuda(target):
        return target.copy_(values)
    host = _to_host(target)
    host.copy_(values)
    if host.numel():
        _bytes(target, host, _extent(target))
    return target


def _on_host(operator: Any) -> Callable[..., Any]:
    arguments = operator._schema.arguments
    tensor_places = [place for place, argument in enumerate(arguments) if "Tensor" in str(argument.type)]
    written = [
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]

    def run(*args: Any, **kwargs: Any) -> Any:
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = {id(value): value for value in flat if _is_cuda(value)}
        devices = [value for value in flat if isinstance(value, torch.device) and value.type == "cuda"]
        device = devices[0] if devices else next(iter(tensors.values())).device
        hosts = {key: _to_host(tensor) for key, tensor in tensors.items()}
        cpu = torch.device("cpu")
        swapped = [hosts.get(id(value), cpu if isinstance(value, torch.device) else value) for value in flat]
        on_host, more = pytree.tree_unflatten(swapped, spec)
        # Numbers that came as tensors have become numbers again.
        numbers = [on_host[place] for place in tensor_places if place < len(args)]
        is_number = any(isinstance(value, int | float | complex) for value in numbers)
        results = (operator.overloadpacket if is_number else operator)(*on_host, **more)
        for place, name in written:
            value = args[place] if place < len(args) else kwargs.get(name)
            for tensor in filter(_is_cuda, pytree.tree_leaves(value)):
                _put(tensor, hosts[id(tensor)], device)
        given = {id(host): tensors[key] for key, host in hosts.items()}

        def back(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return given[id(value)] if id(value) in given else _to_device(value, device)

        return pytree.tree_map(back, results)

    return run


def _put(tensor: torch.Tensor, host: torch.Tensor, device: torch.device) -> None:
    """Writes back; an output may have been made larger."""
    if tensor.shape != host.shape:
        tensor.resize_(host.shape)
    if tensor.stride() != host.stride() or not host.numel():
        apart = torch.empty(_extent(tensor), dtype=host.dtype, device="cpu")
        host = apart.as_strided(tensor.shape, tensor.stride()).copy_(host)
    if host.numel():
        _bytes(tensor, host, _extent(tensor))
