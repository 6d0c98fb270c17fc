"""Starts ranks of a job under torchrun, or as plain processes, and reads what they wrote."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": python_path(), **more}


def python_path() -> str:
    return os.pathsep.join([str(HERE), *(path for path in sys.path if path)])


def torchrun(ranks: int, script: str, *arguments: str, seconds: float = 120) -> list[dict]:
    """Runs ``script`` under torchrun; the lines of JSON that ranks have printed, in order of their member ``rank``."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            str(HERE / script),
            *arguments,
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{script} {arguments}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    # What the software driver says of accesses that nothing orders.
    assert ": race: " not in done.stderr, done.stderr[-6000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda line: line["rank"])


def processes(ranks: int, script: str, *arguments: str) -> list[subprocess.Popen]:
    """As torchrun would start them, but each ends by itself."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            env=environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def ends(started: list[subprocess.Popen], seconds: float) -> list[tuple[int | None, str]]:
    """Status and output of each within the time; None for one that is still running, which is killed."""
    deadline = time.monotonic() + seconds
    outcomes: list[tuple[int | None, str]] = []
    for process in started:
        try:
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            outcomes.append((process.returncode, output))
        except subprocess.TimeoutExpired:
            process.kill()
            outcomes.append((None, process.communicate()[0]))
    return outcomes
