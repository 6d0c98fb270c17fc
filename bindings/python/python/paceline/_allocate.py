"""New arrays for results, of the kind that the caller uses."""

import math
from types import ModuleType
from typing import Any

_numpy: ModuleType | None
try:
    import numpy as _numpy
except ImportError:
    _numpy = None


def empty(like: Any, shape: tuple[int, ...] | None) -> Any:
    """An array like ``like``, with its shape unless another is given: a tensor for a tensor, an array of numpy's where numpy is,
    otherwise a memoryview of a bytearray."""
    if _numpy is not None and isinstance(like, _numpy.ndarray):
        return _numpy.empty(like.shape if shape is None else shape, like.dtype)
    if hasattr(like, "new_empty"):
        return like.new_empty(like.shape if shape is None else shape)
    if _numpy is not None:
        like = _numpy.asarray(like)
        return _numpy.empty(like.shape if shape is None else shape, like.dtype)
    view = memoryview(like)
    lengths = (view.shape or ()) if shape is None else shape
    plain = memoryview(bytearray(math.prod(lengths) * view.itemsize))
    format: Any = view.format
    # No lengths of zero can be cast to.
    return plain.cast(format, lengths) if 0 not in lengths else plain.cast(format)
