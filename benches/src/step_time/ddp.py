"""The steps that `step_time` measures, as PyTorch's DDP over gloo does them.

Arguments: the file where the ranks meet, layers, width, tokens, KiB of a bucket, rounds, and `bind` or `free`. RANK and
WORLD_SIZE say who this is. In each round rank 0 prints as many lines of "time <microseconds>" as samples.rs has names for
a peer, each the slower rank's.
"""

import ctypes
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3


def chain(layers, width):
    parts = []
    for layer in range(layers):
        linear = torch.nn.Linear(width, width)
        torch.nn.init.normal_(linear.weight, std=(2 / width) ** 0.5)
        torch.nn.init.zeros_(linear.bias)
        parts += [linear] if layer + 1 == layers else [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


def step(model, optimizer, source):
    """Seconds of the whole step, of the forward pass and of the backward pass."""
    begun = time.perf_counter()
    loss = model(source).square().sum()
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begun, forward - begun, backward - forward


def main():
    # Ends with the program that started it.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meeting, binding = sys.argv[1], sys.argv[7]
    layers, width, tokens, bucket_kib, rounds = map(int, sys.argv[2:7])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    patience = datetime.timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=patience)
    # The first bucket, with which sending begins, as large as the others.
    dist._DEFAULT_FIRST_BUCKET_BYTES = bucket_kib * 1024
    source = torch.randn(tokens, width)
    alone, ours = chain(layers, width), chain(layers, width)
    ddp = DistributedDataParallel(ours, bucket_cap_mb=bucket_kib / 1024, gradient_as_bucket_view=True)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-5) for model in (alone, ours)]
    numbers = sum(parameter.numel() for parameter in ours.parameters())
    each = bucket_kib * 256
    sizes = [min(each, numbers - first) for first in range(0, numbers, each)]
    target, copied = torch.zeros(numbers), torch.ones(numbers)

    def communication():
        buckets = [torch.ones(size) for size in sizes]
        dist.barrier()
        begun = time.perf_counter()
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()
        took = time.perf_counter() - begun
        if any((bucket != ranks).any() for bucket in buckets):
            raise SystemExit(f"rank {rank}: a wrong sum")
        return took

    def copy():
        dist.barrier()
        begun = time.perf_counter()
        target.copy_(copied)
        return time.perf_counter() - begun

    for turn in range(WARM_UP + rounds):
        if turn == WARM_UP and binding == "bind":
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
        dist.barrier()
        compute = step(alone, optimizers[0], source)
        parts = [*compute, communication(), copy()]
        dist.barrier()
        both, _, backward = step(ddp, optimizers[1], source)
        said = torch.tensor([*parts, both, backward], dtype=torch.float64)
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        if rank == 0 and turn >= WARM_UP:
            for number in said.tolist():
                print(f"time {number * 1e6:.1f}", flush=True)
    dist.destroy_process_group()


main()
