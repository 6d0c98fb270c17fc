"""What went wrong, as exceptions: one class for each kind of error that the library has."""

import builtins
from collections.abc import Sequence


class Error(RuntimeError):
    """An error of a communicator. After one other than InvalidArgument the communicator is dead, and every call says why."""

    kind: str
    """What kind of thing went wrong, in a word or two."""
    rank: int | None
    """The rank that says so; None before there is a communicator."""
    peers: tuple[int, ...]
    """The ranks to look at first: dead, late, or of another opinion."""
    call: str | None
    """The call that failed, as ``all_reduce #412 (ring, n = 4)``, if one was under way."""
    round: int | None
    """The round of the call's schedule in which it failed, from 0."""
    cause: str
    """What happened, without the call and the hint."""
    hint: str | None
    """What to try."""
    reporter: int | None
    """The rank that found out, if it was another one."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        rank: int | None = None,
        peers: Sequence[int] = (),
        call: str | None = None,
        round: int | None = None,
        cause: str | None = None,
        hint: str | None = None,
        reporter: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.rank = rank
        self.peers = tuple(peers)
        self.call = call
        self.round = round
        self.cause = message if cause is None else cause
        self.hint = hint
        self.reporter = reporter


class InvalidArgument(Error, ValueError):
    """The call can't be meant as it stands. Nothing was sent, and the communicator can be used."""


class Mismatch(Error):
    """Ranks called different things."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed."""


class PeerLost(Error, ConnectionError):
    """A rank is gone."""


class PeerDied(PeerLost):
    """A rank's process is gone."""


class PeerLeft(PeerLost):
    """A rank let its communicator go while others still needed it."""


class Aborted(Error):
    """Somebody called abort, or a signal interrupted a call."""


class RendezvousError(Error):
    """The ranks did not find each other."""


class SystemFailure(Error, OSError):
    """The operating system refused something."""


class InternalError(Error):
    """A bug in paceline, or memory corrupted by something else."""


_CLASSES: dict[str, type[Error]] = {
    "invalid argument": InvalidArgument,
    "mismatch": Mismatch,
    "timeout": TimeoutError,
    "peer died": PeerDied,
    "peer left": PeerLeft,
    "aborted": Aborted,
    "rendezvous": RendezvousError,
    "system": SystemFailure,
    "internal": InternalError,
}


def make(
    kind: str,
    message: str,
    *,
    rank: int | None,
    peers: Sequence[int] = (),
    call: str | None = None,
    round: int | None = None,
    cause: str | None = None,
    hint: str | None = None,
    reporter: int | None = None,
) -> Error:
    """The exception of a kind, by the library's name for it."""
    return _CLASSES.get(kind, Error)(
        message,
        kind=kind,
        rank=rank,
        peers=peers,
        call=call,
        round=round,
        cause=cause,
        hint=hint,
        reporter=reporter,
    )
