"""Every collective of torch.distributed on this rank, against what it must give. Run by torchrun."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import paceline.torch  # noqa: F401

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
]
MOVED = [*TYPES, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]


def same(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == right.dtype and left.shape == right.shape, (left.dtype, left.shape, right.dtype, right.shape)
    assert torch.equal(left.to(torch.complex128), right.to(torch.complex128)), (left, right)


def value(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count) * (rank + 1) + rank) % 4 + 1).reshape(shape).to(dtype)


def reductions(me: int, n: int) -> None:
    folds = {
        dist.ReduceOp.SUM: lambda all: all.sum(0),
        dist.ReduceOp.PRODUCT: lambda all: all.prod(0),
        dist.ReduceOp.MIN: lambda all: all.amin(0),
        dist.ReduceOp.MAX: lambda all: all.amax(0),
    }
    for dtype in TYPES:
        for op, fold in folds.items():
            for shape in ((), (7,), (3, 5), (0,)):
                all_ = torch.stack([value(rank, shape, dtype).double() for rank in range(n)])
                expected = fold(all_).to(dtype)
                tensor = value(me, shape, dtype)
                dist.all_reduce(tensor, op)
                same(tensor, expected)
                for root in range(n):
                    tensor = value(me, shape, dtype)
                    dist.reduce(tensor, root, op)
                    same(tensor, expected if me == root else value(me, shape, dtype))
            whole = [value(rank, (n * 3,), dtype) for rank in range(n)]
            expected = fold(torch.stack([part.double() for part in whole])).to(dtype)[me * 3 : me * 3 + 3]
            output = torch.empty(3, dtype=dtype)
            dist.reduce_scatter_tensor(output, whole[me], op)
            same(output, expected)
            dist.reduce_scatter(output.zero_(), list(whole[me].chunk(n)), op)
            same(output, expected)
    mean = torch.full((4,), float(me))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    same(mean, torch.full((4,), (n - 1) / 2))
    scaled = torch.ones(4)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    same(scaled, torch.full((4,), n / 2))
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool):
        bits = [torch.tensor([rank % 2, 1, 0], dtype=dtype) for rank in range(n)]
        for op, name in ((dist.ReduceOp.BAND, "and"), (dist.ReduceOp.BOR, "or"), (dist.ReduceOp.BXOR, "xor")):
            expected = bits[0].clone()
            for other in bits[1:]:
                expected = getattr(torch, f"bitwise_{name}")(expected, other)
            tensor = bits[me].clone()
            dist.all_reduce(tensor, op)
            same(tensor, expected)
    for dtype in (torch.complex64, torch.complex128):
        tensor = torch.full((3,), complex(me, 1), dtype=dtype)
        dist.all_reduce(tensor)
        same(tensor, torch.full((3,), complex(n * (n - 1) / 2, n), dtype=dtype))
        try:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
            raise SystemExit("the maximum of complex numbers went through")
        except ValueError:
            pass
    try:
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
        raise SystemExit("bits of floats went through")
    except RuntimeError:
        pass
    strided = torch.zeros(4, 6)[:, ::2]
    strided += me
    dist.all_reduce(strided)
    same(strided, torch.full((4, 3), n * (n - 1) / 2))
    many = [torch.full((size,), float(me)) for size in (1, 0, 5)]
    dist.all_reduce_coalesced(many)
    for tensor in many:
        same(tensor, torch.full_like(tensor, n * (n - 1) / 2))


def sparse(me: int, n: int) -> None:
    indices = torch.tensor([[me, n]])
    tensor = torch.sparse_coo_tensor(indices, torch.ones(2, 2), (n + 1, 2))
    dist.all_reduce(tensor)
    expected = torch.ones(n + 1, 2)
    expected[n] = n
    same(tensor.to_dense(), expected)


def moves(me: int, n: int) -> None:
    for dtype in MOVED:
        own = [value(rank, (2, 3), dtype) for rank in range(n)]
        for root in range(n):
            tensor = own[me].clone()
            dist.broadcast(tensor, root)
            same(tensor, own[root])
            outputs = [torch.empty(2, 3, dtype=dtype) for _ in range(n)] if me == root else None
            dist.gather(own[me], outputs, root)
            for output, expected in zip(outputs or [], own):
                same(output, expected)
            output = torch.empty(2, 3, dtype=dtype)
            dist.scatter(output, own if me == root else None, root)
            same(output, own[me])
        outputs = [torch.empty(2, 3, dtype=dtype) for _ in range(n)]
        dist.all_gather(outputs, own[me])
        for output, expected in zip(outputs, own):
            same(output, expected)
        whole = torch.empty(n * 2, 3, dtype=dtype)
        dist.all_gather_into_tensor(whole, own[me])
        same(whole, torch.cat(own))
        output = torch.empty(n, 3, dtype=dtype)
        dist.all_to_all_single(output, torch.stack([value(me * n + peer, (3,), dtype) for peer in range(n)]))
        same(output, torch.stack([value(peer * n + me, (3,), dtype) for peer in range(n)]))
        arriving = [torch.empty(peer + 1, dtype=dtype) for peer in range(n)]
        dist.all_to_all(arriving, [value(me, (me + 1,), dtype) for _ in range(n)])
        for peer, tensor in enumerate(arriving):
            same(tensor, value(peer, (peer + 1,), dtype))
    uneven = [torch.empty(rank, 2) for rank in range(n)]
    dist.all_gather(uneven, torch.full((me, 2), float(me)))
    for rank, tensor in enumerate(uneven):
        same(tensor, torch.full((rank, 2), float(rank)))
    leaving = torch.arange(float(n * (n + 1) // 2)).unsqueeze(1).expand(-1, 2) + me
    output = torch.empty(n * (me + 1), 2)
    dist.all_to_all_single(output, leaving, [me + 1] * n, [peer + 1 for peer in range(n)])
    start = me * (me + 1) // 2
    expected = torch.cat([torch.arange(float(start), float(start + me + 1)) + peer for peer in range(n)])
    same(output, expected.unsqueeze(1).expand(-1, 2))
    with dist._coalescing_manager():
        pass
    wholes = [torch.empty(n * size) for size in (1, 4)]
    group = dist.group.WORLD
    work = group.allgather_into_tensor_coalesced(wholes, [torch.full((size,), float(me)) for size in (1, 4)])
    work.wait()
    for size, tensor in zip((1, 4), wholes):
        same(tensor, torch.arange(float(n)).repeat_interleave(size))
    parts = [torch.empty(size) for size in (1, 4)]
    group.reduce_scatter_tensor_coalesced(parts, [torch.ones(n * size) for size in (1, 4)]).wait()
    for tensor in parts:
        same(tensor, torch.full_like(tensor, float(n)))
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me, "text": "x" * me})
    assert objects == [{"rank": rank, "text": "x" * rank} for rank in range(n)]


def messages(me: int, n: int) -> None:
    if n == 1:
        return
    right, left = (me + 1) % n, (me - 1) % n
    for count in (0, 1, 28, 29, 100_000):
        works = [
            dist.isend(torch.full((count,), me + 0.5), right, tag=2),
            dist.isend(torch.full((count,), float(me)), right, tag=1),
        ]
        # In the other order than sent.
        for tag, extra in ((1, 0.0), (2, 0.5)):
            tensor = torch.empty(count)
            dist.recv(tensor, left, tag=tag)
            same(tensor, torch.full((count,), left + extra))
        for work in works:
            work.wait()
    seen = set()
    if me == 0:
        for _ in range(n - 1):
            tensor = torch.empty(2)
            source = dist.recv(tensor)
            same(tensor, torch.full((2,), float(source)))
            seen.add(source)
        assert seen == set(range(1, n))
    else:
        dist.send(torch.full((2,), float(me)), 0)
    # Whoever takes from any rank must not get what follows.
    dist.barrier()
    arriving = torch.empty(5)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, arriving, left), dist.P2POp(dist.isend, torch.full((5,), float(me)), right)]
    )
    for work in works:
        work.wait()
    same(arriving, torch.full((5,), float(left)))
    # A receive that nobody has answered yet doesn't hold other calls up.
    tensor = torch.empty(3)
    work = dist.irecv(tensor, left, tag=9)
    dist.all_reduce(torch.ones(100_000))
    assert not work.is_completed()
    dist.barrier()
    dist.isend(torch.full((3,), float(me)), right, tag=9).wait()
    work.wait()
    same(tensor, torch.full((3,), float(left)))


def futures(me: int, n: int) -> None:
    if n > 1 and me == 0:
        # Received after the futures below have ended; nobody waits for it.
        dist.isend(torch.ones(2_000_000), 1, tag=5).get_future()
    tensors = [torch.full((1000,), float(me)) for _ in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    doubled = [work.get_future().then(lambda future: future.value()[0] * 2) for work in works]
    for future in doubled:
        same(future.wait(), torch.full((1000,), float(n * (n - 1))))
    for work in works:
        work.wait()
        assert work.is_completed() and work.is_success()
        same(work.result()[0], torch.full((1000,), n * (n - 1) / 2))
    if n > 1 and me == 1:
        late = torch.empty(2_000_000)
        dist.recv(late, 0, tag=5)
        same(late, torch.ones(2_000_000))
    # Nobody waits, and the tensor's name is gone.
    dist.all_reduce(torch.ones(1_000_000), async_op=True)
    dist.barrier()


def groups(me: int, n: int) -> None:
    even = dist.new_group(list(range(0, n, 2)), timeout=timedelta(seconds=20))
    if me % 2 == 0:
        tensor = torch.full((3,), float(me))
        dist.all_reduce(tensor, group=even)
        same(tensor, torch.full((3,), float(sum(range(0, n, 2)))))
    twin = dist.new_group()
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, group=twin, async_op=True)
    dist.all_reduce(torch.ones(3))
    work.wait()
    same(tensor, torch.full((3,), float(n)))
    if n > 1:
        part = dist.split_group(split_ranks=[list(range(n // 2)), list(range(n // 2, n))])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == dist.get_world_size(part)
    dist.monitored_barrier()
    dist.destroy_process_group(twin)


def main() -> None:
    dist.init_process_group("paceline", timeout=timedelta(seconds=60))
    me, n = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "paceline"
    for part in (reductions, sparse, moves, messages, futures, groups):
        part(me, n)
        dist.barrier()
    for _ in range(3):
        # The same names in the same store.
        dist.destroy_process_group()
        dist.init_process_group("paceline", timeout=timedelta(seconds=60))
        groups(me, n)
    dist.destroy_process_group()
    # In one piece: ranks share the pipe.
    sys.stdout.write(json.dumps({"rank": me, "size": n, "process": os.getpid()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
