"""A rank of a job in which rank 1 dies, stops, or calls something else: ``lost.py killed|stuck|mismatch SECONDS``."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import paceline.torch  # noqa: F401


def main() -> None:
    how, seconds = sys.argv[1], float(sys.argv[2])
    dist.init_process_group("paceline", timeout=timedelta(seconds=seconds))
    me = dist.get_rank()
    for turn in range(1000):
        if me == 1 and turn == 5:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "stuck":
                time.sleep(1000)
        length = 7 if how == "mismatch" and me == 1 and turn == 5 else 100_000
        began = time.monotonic()
        try:
            if how == "stuck" and turn % 2:
                dist.all_reduce(torch.ones(length), async_op=True).wait()
            else:
                dist.all_reduce(torch.ones(length))
        except dist.DistBackendError as error:
            print(f"raised after {time.monotonic() - began:.2f} s: {error}", flush=True)
            os._exit(3)


if __name__ == "__main__":
    main()
