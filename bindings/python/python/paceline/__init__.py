"""Collectives between threads, processes and hosts, on anything with the buffer protocol or DLPack.

``Communicator.from_env()`` is where to begin; ``docs/python.md`` has the rest.
"""

from paceline._errors import (
    Aborted,
    Error,
    InternalError,
    InvalidArgument,
    Mismatch,
    PeerDied,
    PeerLeft,
    PeerLost,
    RendezvousError,
    SystemFailure,
    TimeoutError,
)
from paceline._paceline import Communicator, Group, PreMulSum, Work, __version__

__all__ = [
    "Aborted",
    "Communicator",
    "Error",
    "Group",
    "InternalError",
    "InvalidArgument",
    "Mismatch",
    "PeerDied",
    "PeerLeft",
    "PeerLost",
    "PreMulSum",
    "RendezvousError",
    "SystemFailure",
    "TimeoutError",
    "Work",
    "__version__",
]
