"""all_reduce through torch.distributed, paceline against gloo, in the same processes and in turns.

    torchrun --standalone --nproc-per-node 2 torch_all_reduce.py [--rounds 9] [--async]

For each size: the median over rounds of the time per call on the slowest rank, and the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist

import paceline.torch  # noqa: F401

SIZES = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def seconds_per_call(group: dist.ProcessGroup, tensor: torch.Tensor, calls: int, is_async: bool) -> float:
    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(calls):
        work = dist.all_reduce(tensor, group=group, async_op=is_async)
        if work is not None:
            work.wait()
    taken = torch.tensor([(time.perf_counter() - began) / calls])
    dist.all_reduce(taken, dist.ReduceOp.MAX, group=group)
    return taken.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--async", dest="is_async", action="store_true", help="async_op=True, and wait() at once")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each cell of a round, about")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "paceline": dist.new_group(backend="paceline")}
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"{n} processes; us per call\n{'bytes':>10} {'gloo':>10} {'paceline':>10} {'ratio':>7} {'least':>7}")
    for size in arguments.sizes:
        tensor = torch.zeros(size // 4)
        calls = {}
        for name, group in groups.items():
            # So many that how late ranks leave the barrier doesn't count. The same on all ranks: what is measured is the slowest's.
            count, taken = 2, 0.0
            while taken * count < arguments.seconds / 2 and count < 10_000:
                count *= 2
                taken = seconds_per_call(group, tensor, count, arguments.is_async)
            calls[name] = count
        times: dict[str, list[float]] = {name: [] for name in groups}
        for _ in range(arguments.rounds):
            for name, group in groups.items():
                times[name].append(seconds_per_call(group, tensor, calls[name], arguments.is_async))
        ratios = [theirs / ours for theirs, ours in zip(times["gloo"], times["paceline"], strict=True)]
        if dist.get_rank() == 0:
            gloo, ours = (statistics.median(times[name]) * 1e6 for name in groups)
            print(
                f"{size:10} {gloo:10.1f} {ours:10.1f} {statistics.median(ratios):7.1f} {min(ratios):7.1f}", flush=True
            )
    dist.barrier(groups["paceline"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
