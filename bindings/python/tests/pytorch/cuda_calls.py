"""Every collective of torch.distributed over CUDA tensors, against what it must give. Run by torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import calls
import cuda_device
import torch
import torch.distributed as dist
from calls import same

import paceline.torch  # noqa: F401

# How late a rank comes whom others wait for, and what counts as not waiting.
LATE, SOON = 1.0, 0.5
MANY = 300_000


def raises(call: Callable[[], object], *words: str) -> None:
    try:
        call()
    except RuntimeError as error:
        assert all(word in str(error) for word in words), error
        return
    raise SystemExit(f"{words}: it went through")


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def total(n: int) -> float:
    return n * (n - 1) / 2


def messages(me: int, n: int) -> None:
    if n == 1:
        return
    right, left = (me + 1) % n, (me - 1) % n
    # The first between these ranks, all round the ring, and long: nobody has received yet when everybody sends.
    leaving, arriving = torch.full((MANY,), float(me)), torch.empty(MANY)
    works = [dist.isend(leaving, right), dist.irecv(arriving, left)]
    for work in works:
        work.wait()
    same(arriving, torch.full((MANY,), float(left)))
    for count in (0, 1, 28, 100_000):
        works = [dist.isend(torch.full((count,), me + turn / 2), right) for turn in range(3)]
        for turn in range(3):
            tensor = torch.empty(count)
            dist.recv(tensor, left)
            same(tensor, torch.full((count,), left + turn / 2))
        for work in works:
            work.wait()
    strided = torch.zeros(6, 2)[:, 0]
    # In this order: where the host computes, it waits for what is copied out of the way.
    pairs = [dist.P2POp(dist.isend, torch.full((6,), float(me)), right), dist.P2POp(dist.irecv, strided, left)]
    for work in dist.batch_isend_irecv(pairs):
        work.wait()
    same(strided, torch.full((6,), float(left)))
    # A receive that nobody has answered yet doesn't hold other calls up, nor the host.
    tensor = torch.empty(3)
    work = dist.irecv(tensor, left)
    whole = torch.ones(100_000)
    dist.all_reduce(whole)
    same(whole, torch.full((100_000,), float(n)))
    assert not work.is_completed()
    dist.barrier()
    dist.isend(torch.full((3,), float(me)), right).wait()
    work.wait()
    same(tensor, torch.full((3,), float(left)))
    raises(lambda: dist.recv(torch.empty(1)), "from any rank")


def streams(me: int, n: int) -> None:
    dist.all_reduce(torch.ones(1))
    # A copy on another stream, the call behind it there, and a reader on the current stream behind that.
    side = torch.cuda.Stream()
    pinned = torch.full((MANY,), float(me), device="cpu").pin_memory()
    for _ in range(5):
        tensor, result = torch.empty(MANY), torch.empty(MANY)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.copy_(pinned, non_blocking=True)
            work = dist.all_reduce(tensor, async_op=True)
        tensor.record_stream(side)
        work.wait()
        result.copy_(tensor)
        same(result, torch.full((MANY,), total(n)))
    if n == 1:
        return
    # Neither calls nor waiting for them holds up the host, though another rank comes late.
    torch.cuda.synchronize()
    dist.barrier()
    if me == 1:
        time.sleep(LATE)
    tensor = torch.full((MANY,), float(me))
    kept = torch.full((MANY,), 1.0)
    address = kept.data_ptr()
    works: list[dist.Work] = []
    took = seconds(lambda: works.extend(dist.all_reduce(one, async_op=True) for one in (tensor, kept)))
    done = works[1].is_completed()
    # Whoever drops a tensor, and the work, while a call has it, doesn't give its memory to the next one.
    works.pop()
    del kept
    other = torch.empty(MANY)
    assert other.data_ptr() != address
    took += seconds(works[0].wait)
    if me == 0:
        assert took < SOON, f"the host waited for {took} s"
        assert not done and not works[0].is_completed()
    same(tensor, torch.full((MANY,), total(n)))
    torch.cuda.synchronize()
    assert all(work.is_completed() and work.is_success() for work in works)
    # With a timeout the host waits, too, and says so when it has waited long enough.
    dist.barrier()
    if me == 1:
        time.sleep(LATE)
    work = dist.all_reduce(tensor, async_op=True)
    if me == 0:
        raises(lambda: work.wait(timedelta(milliseconds=100)), "100 ms", "the call goes on")
        assert SOON < seconds(lambda: work.wait(timedelta(seconds=20)))
        assert work.is_completed()
    work.wait()
    torch.cuda.synchronize()


def barriers(me: int, n: int) -> None:
    device = torch.cuda.current_device()
    dist.barrier(device_ids=[device])
    if n > 1:
        if me == 1:
            time.sleep(LATE)
        took = seconds(lambda: dist.barrier(device_ids=[device]))
        assert me == 1 or took > SOON, took
    dist.barrier(device_ids=[device], async_op=True).wait()
    dist.monitored_barrier()


def futures(me: int, n: int) -> None:
    tensors = [torch.full((1000,), float(me)) for _ in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    doubled = [work.get_future().then(lambda future: future.value()[0] * 2) for work in works]
    for future in doubled:
        same(future.wait(), torch.full((1000,), float(n * (n - 1))))
    for work in works:
        work.wait()
        same(work.result()[0], torch.full((1000,), total(n)))
    # Nobody waits, and the tensor's name is gone.
    dist.all_reduce(torch.ones(MANY), async_op=True)
    dist.barrier()


def coalesced(me: int, n: int) -> None:
    group, device = dist.group.WORLD, torch.device("cuda", torch.cuda.current_device())
    tensors = [torch.full((length,), float(me)) for length in (1, 7, MANY)]
    with dist._coalescing_manager(group, device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, total(n)))
    group._start_coalescing(device)
    wholes = [torch.empty(n * length) for length in (2, 50_000)]
    for whole in wholes:
        group._get_backend(device).all_gather_single(whole, torch.full((whole.numel() // n,), float(me)))
    work = group._end_coalescing(device)
    work.wait()
    for whole in wholes:
        same(whole, torch.arange(float(n)).repeat_interleave(whole.numel() // n))
    torch.cuda.synchronize()
    assert work.is_completed()


def mixed(me: int, n: int) -> None:
    """Calls over memory of the host between those over memory of the device."""
    for turn in range(5):
        here, there = torch.full((1000,), float(me), device="cpu"), torch.full((1000,), float(me + turn))
        work = dist.all_reduce(there, async_op=True)
        dist.all_reduce(here)
        work.wait()
        same(here, torch.full((1000,), total(n), device="cpu"))
        same(there, torch.full((1000,), total(n) + n * turn))
    raises(lambda: dist.all_gather([torch.empty(2, device="cpu")] * n, torch.empty(2)), "on one device")


def groups(me: int, n: int) -> None:
    even = dist.new_group(list(range(0, n, 2)), timeout=timedelta(seconds=20))
    if me % 2 == 0:
        tensor = torch.full((3,), float(me))
        dist.all_reduce(tensor, group=even)
        same(tensor, torch.full((3,), float(sum(range(0, n, 2)))))
    if n > 1:
        part = dist.split_group(split_ranks=[list(range(n // 2)), list(range(n // 2, n))])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == dist.get_world_size(part)
    lonely = dist.new_group()
    unanswered = dist.isend(torch.ones(3), 1, group=lonely) if me == 0 and n > 1 else None
    assert seconds(lambda: dist.destroy_process_group(lonely)) < SOON * 4
    if unanswered is not None:
        raises(unanswered.wait, "the process group was destroyed")
    if n > 2:
        # Ranks of the job have other numbers in the group.
        tail = dist.new_group(list(range(1, n)))
        if me == 1:
            dist.send(torch.full((9,), 5.0), n - 1, group=tail)
        elif me == n - 1:
            tensor = torch.empty(9)
            dist.recv(tensor, 1, group=tail)
            same(tensor, torch.full((9,), 5.0))


def main() -> None:
    how = sys.argv[1]
    device = cuda_device.take()
    bound = {"device_id": device} if how == "bound" else {}
    backend = "cpu:paceline,cuda:paceline" if how == "both" else "paceline"
    dist.init_process_group(backend, timeout=timedelta(seconds=60), **bound)
    me, n = dist.get_rank(), dist.get_world_size()
    values = (calls.reductions, calls.moves)
    order = (messages, streams, barriers, futures, coalesced, mixed, groups)
    for part in values if how == "values" else order:
        part(me, n)
        dist.barrier()
    for _ in range(2):
        # The same names in the same store.
        dist.destroy_process_group()
        dist.init_process_group("paceline", timeout=timedelta(seconds=60))
        messages(me, n)
        groups(me, n)
    # What is in a stream when the group is destroyed is done all the same.
    tensor = torch.ones(MANY)
    dist.all_reduce(tensor, async_op=True)
    dist.destroy_process_group()
    same(tensor, torch.full((MANY,), float(n)))
    sys.stdout.write(json.dumps({"rank": me, "size": n, "process": os.getpid()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
