"""The loop that `side_by_side` runs for every implementation, over gloo, by way of torch.distributed.

Arguments: the file where the ranks meet, then call:type:bytes:iterations, each one cell. RANK and WORLD_SIZE say
who this is. Rank 0 prints, as each cell is done, "time <microseconds per call>", the slowest rank's, or "refused <why>";
for overlap, as many of overlap/mod.rs's samples as there are iterations.
pattern.rs says what the buffers hold. all_reduce and reduce exist in place only: after the check they sum zeros, which
stay what they are.
"""

import ctypes
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
BLOCKS = ("reduce_scatter", "all_gather", "all_to_all")
UNEVEN = ("reduce_scatter_v", "all_gather_v")
GROUPED = 50
PAGE = 4096


def buffer(elements, dtype):
    """Zeros that begin at a page."""
    width = torch.empty(0, dtype=dtype).element_size()
    memory = torch.zeros(elements + PAGE // width, dtype=dtype)
    first = -memory.data_ptr() % PAGE // width
    return memory[first : first + elements]


def values(rank, first, count):
    """Elements first to first + count of a rank's input."""
    return (torch.arange(first, first + count) + rank) % 5 + 1


def sums(ranks, first, count):
    return sum(values(rank, first, count) for rank in range(ranks))


def below(k):
    return k * (k - 1) // 2


def begin(count, ranks, sender, to):
    """Where the block for a rank begins in the sender's vector: shares.rs says how vectors are cut."""
    wrapped = below(ranks) - below(sender) + below(sender + to - ranks)
    weight = below(sender + to) - below(sender) if sender + to <= ranks else wrapped
    return count * weight // below(ranks)


def block(count, ranks, sender, to):
    """The first element of the block, and how many there are."""
    first = begin(count, ranks, sender, to)
    return first, begin(count, ranks, sender, to + 1) - first


def has_result(call, rank, ranks):
    if call == "reduce":
        return rank == 0
    if call == "one_way":
        return rank % 2 == 1
    return call != "ping_pong" or rank ^ 1 < ranks


def expected(call, rank, ranks, count):
    everyone = range(ranks)
    if call in ("all_reduce", "reduce", "split_all_reduce"):
        return sums(ranks, 0, count)
    if call == "group_of_50":
        return sums(ranks, 0, count * GROUPED)
    if call.startswith("split"):
        return torch.empty(0, dtype=torch.int64)
    if call == "all_to_all_v":
        return torch.cat([values(other, *block(count, ranks, other, rank)) for other in everyone])
    if call in ("ping_pong", "one_way"):
        return values(rank ^ 1, 0, count)
    if call == "reduce_scatter":
        return sums(ranks, rank * count, count)
    if call == "all_gather":
        return torch.cat([values(other, 0, count) for other in everyone])
    if call == "all_to_all":
        return torch.cat([values(other, rank * count, count) for other in everyone])
    if call == "broadcast":
        return values(0, 0, count)
    return values((rank - 1) % ranks, 0, count)


def one_call(call, rank, ranks, count, source, target):
    """A function that makes the call once."""
    blocks = list(target.split(count)) if call == "all_gather" else None
    parts = list(source.split(count)) if call == "reduce_scatter" else None
    sends = [block(count, ranks, rank, other)[1] for other in range(ranks)]
    receives = [block(count, ranks, other, rank)[1] for other in range(ranks)]
    grouped = target.split(count) if call == "group_of_50" else None
    everyone = list(range(ranks))
    first = (ranks + 1) // 2
    made = dist.new_group(everyone) if call == "split_all_reduce" else None
    after, before, other = (rank + 1) % ranks, (rank - 1) % ranks, rank ^ 1

    def send_recv():
        sending = dist.isend(source, after)
        dist.recv(target, before)
        sending.wait()

    def one_way():
        if rank % 2 == 0 and other < ranks:
            dist.send(source, other)
        if rank % 2 == 1:
            dist.recv(target, other)

    def ping_pong():
        one_way()
        if rank % 2 == 1:
            dist.send(source, other)
        elif other < ranks:
            dist.recv(target, other)

    def group_of_50():
        for work in [dist.all_reduce(part, async_op=True) for part in grouped]:
            work.wait()

    def split(*groups):
        for made in [dist.new_group(group) for group in groups]:
            if made is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(made)

    return {
        "group_of_50": group_of_50,
        "split": lambda: split(everyone),
        "split_halves": lambda: split(everyone[:first], everyone[first:]),
        "split_all_reduce": lambda: dist.all_reduce(target, group=made),
        "all_to_all_v": lambda: dist.all_to_all_single(target, source, receives, sends),
        "all_reduce": lambda: dist.all_reduce(target),
        "reduce": lambda: dist.reduce(target, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(target, parts),
        "all_gather": lambda: dist.all_gather(blocks, source),
        "all_to_all": lambda: dist.all_to_all_single(target, source),
        "broadcast": lambda: dist.broadcast(target, 0),
        "send_recv": send_recv,
        "ping_pong": ping_pong,
        "one_way": one_way,
    }[call]


def measure(call, dtype, size, iterations):
    if call in UNEVEN:
        raise NotImplementedError("gloo has no blocks of different lengths in it")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    elements = size // torch.empty(0, dtype=dtype).element_size()
    count = elements // ranks if call in BLOCKS else elements
    sent = received = count
    if call in ("reduce_scatter", "all_to_all"):
        sent = count * ranks
    if call in ("all_gather", "all_to_all"):
        received = count * ranks
    if call == "all_to_all_v":
        received = sum(block(count, ranks, other, rank)[1] for other in range(ranks))
    if call == "group_of_50":
        sent = received = count * GROUPED
    source, target = buffer(sent, dtype), buffer(received, dtype)
    in_place = call in ("all_reduce", "reduce", "group_of_50", "split_all_reduce")
    source.copy_(values(rank, 0, source.numel()))
    if in_place or (call == "broadcast" and rank == 0):
        target.copy_(source)
    run = one_call(call, rank, ranks, count, source, target)
    run()
    if has_result(call, rank, ranks):
        want = expected(call, rank, ranks, count)
        if not torch.equal(target.to(torch.int64), want):
            raise SystemExit(f"rank {rank}: a wrong result: {call}")
    if in_place:
        target.zero_()
    for _ in range(iterations // 10 + 1):
        run()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        run()
    slowest = torch.tensor([(time.perf_counter() - start) / iterations * 1e6], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def compute(turns):
    state = 1
    for _ in range(turns):
        state = state * 5 & 0xFFFFFF


def of_others():
    return time.process_time() - time.thread_time()


def overlap(dtype, size, rounds):
    """See overlap/worker.rs. The samples of all rounds."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = size // torch.empty(0, dtype=dtype).element_size()
    target, source = buffer(count, dtype), values(rank, 0, count).to(dtype)
    want = sums(ranks, 0, count).to(dtype)

    def fill():
        target.copy_(source)
        dist.barrier()

    def check():
        if not torch.equal(target, want):
            raise SystemExit(f"rank {rank}: a wrong result: overlap")

    def slowest(numbers):
        numbers = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return numbers.tolist()

    def timed(work):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def blocking():
        fill()
        before = time.process_time()
        took = timed(lambda: dist.all_reduce(target))
        cpu = time.process_time() - before
        check()
        return took, cpu

    turns = 1_000_000
    per_second = turns / min(timed(lambda: compute(turns)) for _ in range(5))
    turns = int(per_second * sorted(slowest([blocking()[0] for _ in range(5)]))[2])
    for _ in range(rounds):
        call, call_cpu = blocking()
        dist.barrier()
        computing = timed(lambda: compute(turns))
        fill()
        before, start = of_others(), time.perf_counter()
        work = dist.all_reduce(target, async_op=True)
        compute(turns)
        work.wait()
        both, beside_cpu = time.perf_counter() - start, of_others() - before
        check()
        yield from slowest([call, computing, both, call_cpu, beside_cpu])


def main():
    # Ends with the program that started it.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    torch.set_num_threads(1)
    meeting, cells = sys.argv[1], sys.argv[2:]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    patience = datetime.timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=patience)
    for cell in cells:
        call, dtype, size, iterations = cell.split(":")
        if call == "overlap":
            for number in overlap(TYPES[dtype], int(size), int(iterations)):
                if rank == 0:
                    print(f"time {number * 1e6:.1f}", flush=True)
            continue
        try:
            said = f"time {measure(call, TYPES[dtype], int(size), int(iterations)):.4f}"
        except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
            # What gloo doesn't offer, it refuses on every rank before anything is sent.
            said = f"refused {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        if rank == 0:
            print(said, flush=True)
    dist.destroy_process_group()


main()
