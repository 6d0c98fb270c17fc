"""Ranks for tests: as threads of this process, and as processes of their own."""

import faulthandler
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import paceline

# Who waits with the interpreter's lock held stops every thread of Python: only a thread that needs none can end that.
PATIENCE = 60


@pytest.fixture(autouse=True)
def never_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def on_threads(size: int, work: Callable[[paceline.Communicator], Any]) -> list[Any]:
    """What ``work`` gives on each rank of a communicator whose ranks are threads."""
    results: list[Any] = [None] * size
    raised: list[BaseException] = []

    def run(comm: paceline.Communicator) -> None:
        try:
            results[comm.rank] = work(comm)
        except BaseException as error:
            raised.append(error)
            comm.abort(f"a test failed: {error}")

    threads = [threading.Thread(target=run, args=(comm,)) for comm in paceline.Communicator.in_process(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return results


class Job:
    """Ranks that are processes, each of which runs a script with ``comm`` and ``numpy`` as ``np``."""

    def __init__(self, size: int, script: str, environment: dict[str, str] | None = None, joins: bool = True) -> None:
        meet = f"local://{uuid.uuid4()}"
        head = "import os, signal, sys, time\nimport numpy as np\nimport paceline\n"
        # Shells let what runs in the background ignore it.
        head += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        if joins:
            head += "comm = paceline.Communicator.from_env()\n"
        self.ranks: list[subprocess.Popen[str]] = []
        self.errors: list[IO[str]] = []
        for rank in range(size):
            own = {"PACELINE_RANK": rank, "PACELINE_SIZE": size, "PACELINE_RENDEZVOUS": meet, "PACELINE_TIMEOUT": 20}
            variables = os.environ | {name: str(value) for name, value in own.items()} | (environment or {})
            command = [sys.executable, "-c", head + script]
            errors = tempfile.TemporaryFile("w+")
            process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True)
            self.ranks.append(process)
            self.errors.append(errors)

    def line(self, rank: int) -> str:
        """The next line that a rank prints."""
        stdout = self.ranks[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def ends(self) -> list[tuple[int, str, str]]:
        """Each rank's status, and what it printed."""
        ends = []
        for rank, errors in zip(self.ranks, self.errors, strict=True):
            assert rank.stdout is not None
            out = rank.stdout.read()
            status = rank.wait(timeout=PATIENCE)
            errors.seek(0)
            ends.append((status, out, errors.read()))
        return ends

    def check(self) -> list[str]:
        """What each rank printed, if all ended well."""
        ends = self.ends()
        for rank, (status, out, err) in enumerate(ends):
            assert status == 0, f"rank {rank}: {status}\n{out}\n{err}"
        return [out for _, out, _ in ends]

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        for errors in self.errors:
            errors.close()


EXAMPLES = Path(__file__).parent.parent / "examples"
