"""Sums an array over all ranks, and goes on computing meanwhile.

    paceline launch -n 4 -- python all_reduce.py
    torchrun --nproc-per-node 4 all_reduce.py
    mpirun -n 4 python all_reduce.py
"""

import time

import numpy as np

import paceline


def main() -> None:
    with paceline.Communicator.from_env() as comm:
        gradient = np.full(1 << 20, comm.rank + 1.0, np.float32)
        begin = time.perf_counter()
        work = comm.start_all_reduce(gradient, "avg", out=gradient)
        work_done = sum(float(np.linalg.norm(np.ones((64, 64)))) for _ in range(50))
        work.wait()
        took_ms = (time.perf_counter() - begin) * 1e3
        print(f"rank {comm.rank} of {comm.size}: {gradient[0]} on average after {took_ms:.1f} ms ({work_done:.0f})")


if __name__ == "__main__":
    main()
