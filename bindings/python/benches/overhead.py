"""What a call costs in Python over the same call in Rust, in the same processes, in turns. Medians, in microseconds.

    maturin develop --release --features measure
    python benches/overhead.py --ranks 2
"""

import argparse
import array
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

import paceline
from paceline import _paceline

try:
    import torch  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    torch = None


def mean_us(call: Callable[[], Any], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def ways(comm: paceline.Communicator, elements: int, calls: int) -> dict[str, Callable[[], float]]:
    """How to make the call, and what it then takes."""
    source, target = np.ones(elements), np.zeros(elements)
    plain, plain_target = array.array("d", source), array.array("d", target)
    in_python: dict[str, Callable[[], Any]] = {
        "numpy, into an array": lambda: comm.all_reduce(source, out=target),
        "numpy, in place": lambda: comm.all_reduce(target, "max", out=target),
        "numpy, a new array": lambda: comm.all_reduce(source),
        "array.array": lambda: comm.all_reduce(plain, out=plain_target),
        "started, and waited for": lambda: comm.start_all_reduce(source, out=target).wait(),
    }
    if torch is not None:
        tensor, tensor_target = torch.ones(elements, dtype=torch.float64), torch.zeros(elements, dtype=torch.float64)
        in_python["torch, into a tensor"] = lambda: comm.all_reduce(tensor, out=tensor_target)
        in_python["torch, through numpy()"] = lambda: comm.all_reduce(tensor.numpy(), out=tensor_target.numpy())
    timed: dict[str, Callable[[], float]] = {
        "Rust": lambda: _paceline.all_reduce_seconds(comm, elements, calls) * 1e6,  # type: ignore[attr-defined]
    }
    for name, call in in_python.items():
        timed[name] = lambda call=call: mean_us(call, calls)  # type: ignore[misc]
    return timed


def measure(comm: paceline.Communicator, elements: int, calls: int, rounds: int) -> None:
    timed = ways(comm, elements, calls)
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, take in timed.items():
            comm.barrier()
            taken[name].append(take())
    if comm.rank > 0:
        return
    print(f"all_reduce of {elements * 8} B, {comm.size} ranks: us a call, and over Rust (medians of {rounds} x {calls} calls)")
    for name, times in taken.items():
        over = [each - rust for each, rust in zip(times, taken["Rust"], strict=True)]
        print(f"  {name:26} {statistics.median(times):8.3f} {statistics.median(over):8.3f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ranks", type=int, default=1, help="processes to start, unless a launcher has")
    arguments.add_argument("--elements", type=int, default=1)
    arguments.add_argument("--calls", type=int, default=5000)
    arguments.add_argument("--rounds", type=int, default=15)
    given = arguments.parse_args()
    if given.ranks > 1 and "PACELINE_RANK" not in os.environ:
        meet = f"local://{uuid.uuid4()}"
        ours = {"PACELINE_SIZE": str(given.ranks), "PACELINE_RENDEZVOUS": meet}
        started = [
            subprocess.Popen([sys.executable, *sys.argv], env=os.environ | ours | {"PACELINE_RANK": str(rank)})
            for rank in range(given.ranks)
        ]
        sys.exit(max(process.wait() for process in started))
    with paceline.Communicator.from_env() as comm:
        measure(comm, given.elements, given.calls, given.rounds)


if __name__ == "__main__":
    main()
