"""A rank of a job over CUDA tensors in which rank 1 dies, stops, or calls something else: ``cuda_lost.py HOW SECONDS``.

HOW is ``killed``, ``stuck``, ``mismatch``, ``message`` (of another length), ``absent`` (from the first message) or
``aborted``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import cuda_device
import torch
import torch.distributed as dist

import paceline.torch  # noqa: F401

LENGTH = 100_000


def turn(how: str, me: int, number: int) -> None:
    is_odd = me == 1 and number == 5
    if is_odd and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if is_odd and how == "stuck":
        time.sleep(1000)
    if is_odd and how == "aborted":
        dist.group.WORLD.abort()
    if how == "message":
        tensor = torch.ones(7 if is_odd else LENGTH)
        work = dist.isend(tensor, 0) if me == 1 else dist.irecv(tensor, 1)
    elif how == "absent":
        if me == 1:
            time.sleep(1000)
        work = dist.irecv(torch.ones(3), 1)
    else:
        tensor = torch.ones(7 if is_odd and how == "mismatch" else LENGTH)
        work = dist.all_reduce(tensor, async_op=True)
    # The stream goes on after an error, and nobody but the work and later calls say so.
    work.wait()
    torch.cuda.synchronize()
    if not work.is_completed() or work.exception() is not None:
        work.wait()


def main() -> None:
    how, seconds = sys.argv[1], float(sys.argv[2])
    cuda_device.take()
    dist.init_process_group("paceline", timeout=timedelta(seconds=seconds))
    me = dist.get_rank()
    for number in range(1000):
        began = time.monotonic()
        try:
            turn(how, me, number)
        except dist.DistBackendError as error:
            print(f"raised in turn {number} after {time.monotonic() - began:.2f} s: {error}", flush=True)
            began = time.monotonic()
            dist.destroy_process_group()
            print(f"destroyed after {time.monotonic() - began:.2f} s", flush=True)
            os._exit(3)


if __name__ == "__main__":
    main()
