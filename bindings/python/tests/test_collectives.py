"""Every collective against what numpy computes: given an array, without one, in place, started, and in a group."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import on_threads

import paceline

SIZES = [1, 2, 3, 5]
Comm = paceline.Communicator


def brings(rank: int, *shape: int, dtype: Any = np.int64) -> Any:
    """What a rank brings: no two elements of any ranks are the same."""
    count = int(np.prod(shape))
    return (np.arange(count) + 1000 * (rank + 1)).reshape(shape).astype(dtype)


def blocking(comm: Comm, name: str, *arguments: Any, **keywords: Any) -> Any:
    return getattr(comm, name)(*arguments, **keywords)


def started(comm: Comm, name: str, *arguments: Any, **keywords: Any) -> Any:
    return getattr(comm, f"start_{name}")(*arguments, **keywords).result()


def grouped(comm: Comm, name: str, *arguments: Any, **keywords: Any) -> Any:
    with comm.group() as group:
        result = getattr(group, name)(*arguments, **keywords)
        assert len(group) == 1
    return result


WAYS = [blocking, started, grouped]
Way = Callable[..., Any]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_reductions(way: Way, size: int) -> None:
    all_brought = [brings(rank, size * 2, 3) for rank in range(size)]
    folds = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}

    def work(comm: Comm) -> None:
        mine = all_brought[comm.rank]
        for op, fold in folds.items():
            expected = fold(all_brought, axis=0)
            result = way(comm, "all_reduce", mine, op)
            assert result.dtype == mine.dtype
            np.testing.assert_array_equal(result, expected)
            part = way(comm, "reduce_scatter", mine, op)
            np.testing.assert_array_equal(part, expected[comm.rank * 2 : comm.rank * 2 + 2])
            root = size - 1
            at_root = way(comm, "reduce", mine, op, root)
            if comm.rank == root:
                np.testing.assert_array_equal(at_root, expected)
            else:
                assert at_root is None
        average = way(comm, "all_reduce", mine.astype(np.float64), "avg")
        np.testing.assert_allclose(average, np.mean(all_brought, axis=0))
        scaled = way(comm, "all_reduce", mine, paceline.PreMulSum(comm.rank + 2))
        np.testing.assert_array_equal(scaled, sum((rank + 2) * all_brought[rank] for rank in range(size)))
        np.testing.assert_array_equal(mine, brings(comm.rank, size * 2, 3))

    on_threads(size, work)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_reductions_in_place_and_into_an_array(way: Way, size: int) -> None:
    total = np.sum([brings(rank, size * 2) for rank in range(size)], axis=0)

    def work(comm: Comm) -> None:
        rank = comm.rank
        out = np.zeros(size * 2, np.int64)
        assert way(comm, "all_reduce", brings(rank, size * 2), out=out) is out
        np.testing.assert_array_equal(out, total)
        buffer = brings(rank, size * 2)
        assert way(comm, "all_reduce", buffer, out=buffer) is buffer
        np.testing.assert_array_equal(buffer, total)
        buffer = brings(rank, size * 2)
        way(comm, "reduce", buffer, root=0, out=buffer)
        np.testing.assert_array_equal(buffer, total if rank == 0 else brings(rank, size * 2))
        buffer = brings(rank, size * 2)
        way(comm, "reduce_scatter", buffer, out=buffer[rank * 2 : rank * 2 + 2])
        np.testing.assert_array_equal(buffer[rank * 2 : rank * 2 + 2], total[rank * 2 : rank * 2 + 2])

    on_threads(size, work)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_moves(way: Way, size: int) -> None:
    every = np.concatenate([brings(rank, 2, 3) for rank in range(size)])

    def work(comm: Comm) -> None:
        rank = comm.rank
        np.testing.assert_array_equal(way(comm, "all_gather", brings(rank, 2, 3)), every)
        buffer = np.zeros((size * 2, 3), np.int64)
        block = buffer[rank * 2 : rank * 2 + 2]
        block[:] = brings(rank, 2, 3)
        way(comm, "all_gather", block, out=buffer)
        np.testing.assert_array_equal(buffer, every)

        exchanged = np.concatenate([brings(other, size * 2)[rank * 2 : rank * 2 + 2] for other in range(size)])
        np.testing.assert_array_equal(way(comm, "all_to_all", brings(rank, size * 2)), exchanged)
        buffer = brings(rank, size * 2)
        way(comm, "all_to_all", buffer, out=buffer)
        np.testing.assert_array_equal(buffer, exchanged)

        root = size // 2
        at_root = way(comm, "gather", brings(rank, 2, 3), root)
        if rank == root:
            np.testing.assert_array_equal(at_root, every)
            np.testing.assert_array_equal(way(comm, "scatter", every, root), brings(rank, 2, 3))
        else:
            assert at_root is None
            out = np.zeros((2, 3), np.int64)
            assert way(comm, "scatter", None, root, out=out) is out
            np.testing.assert_array_equal(out, brings(rank, 2, 3))

        buffer = brings(rank, 7)
        assert way(comm, "broadcast", buffer, root) is buffer
        np.testing.assert_array_equal(buffer, brings(root, 7))
        out = np.zeros(7, np.int64)
        way(comm, "broadcast", brings(rank, 7) if rank == root else None, root, out=out)
        np.testing.assert_array_equal(out, brings(root, 7))
        assert way(comm, "barrier") is None

    on_threads(size, work)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_different_lengths(way: Way, size: int) -> None:
    counts = [3 * rank % 5 for rank in range(size)]
    starts = np.concatenate([[0], np.cumsum(counts)])
    every = np.concatenate([brings(rank, counts[rank]) for rank in range(size)])

    def work(comm: Comm) -> None:
        rank = comm.rank
        mine = slice(int(starts[rank]), int(starts[rank + 1]))
        np.testing.assert_array_equal(way(comm, "all_gather_v", brings(rank, counts[rank]), counts), every)
        buffer = np.zeros(len(every), np.int64)
        buffer[mine] = brings(rank, counts[rank])
        way(comm, "all_gather_v", buffer[mine], counts, out=buffer)
        np.testing.assert_array_equal(buffer, every)

        total = np.sum([brings(other, len(every)) for other in range(size)], axis=0)
        part = way(comm, "reduce_scatter_v", brings(rank, len(every)), counts, "sum")
        np.testing.assert_array_equal(part, total[mine])

        at_root = way(comm, "gather_v", brings(rank, counts[rank]), counts, 0)
        if rank == 0:
            np.testing.assert_array_equal(at_root, every)
        whole = every if rank == 0 else None
        out = np.zeros(counts[rank], np.int64)
        way(comm, "scatter_v", whole, counts, 0, out=out)
        np.testing.assert_array_equal(out, brings(rank, counts[rank]))

        sent = [(rank + 2 * to) % 3 for to in range(size)]
        received = [(source + 2 * rank) % 3 for source in range(size)]
        result = way(comm, "all_to_all_v", np.repeat(np.arange(size) + 10 * rank, sent), sent, received)
        expected = np.repeat(rank + 10 * np.arange(size), received)
        np.testing.assert_array_equal(result, expected)

    on_threads(size, work)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_messages(size: int) -> None:
    def work(comm: Comm) -> None:
        after, before = (comm.rank + 1) % size, (comm.rank - 1) % size
        result = comm.send_recv(brings(comm.rank, 4), after, before)
        np.testing.assert_array_equal(result, brings(before, 4))
        message = np.zeros(4, np.int64)
        if comm.rank % 2 == 0:
            assert comm.send(brings(comm.rank, 4), after) is None
        arriving = comm.start_recv(message, before)
        if comm.rank % 2 == 1:
            comm.start_send(brings(comm.rank, 4), after).wait()
        assert arriving.result() is message
        np.testing.assert_array_equal(message, brings(before, 4))
        with comm.group() as group:
            group.recv(message, before)
            group.send(brings(comm.rank, 4) + 1, after)
        np.testing.assert_array_equal(message, brings(before, 4) + 1)

    on_threads(size, work)


def test_split_gives_communicators_ordered_by_key() -> None:
    def work(comm: Comm) -> None:
        part = comm.split(comm.rank % 2, -comm.rank)
        assert part is not None
        members = [rank for rank in range(4, -1, -1) if rank % 2 == comm.rank % 2]
        assert (part.size, part.rank) == (len(members), members.index(comm.rank))
        np.testing.assert_array_equal(part.all_gather(np.array([comm.rank])), members)
        assert comm.split(None) is None

    on_threads(5, work)


def test_what_a_communicator_knows() -> None:
    def work(comm: Comm) -> None:
        assert (comm.size, comm.local_size, comm.n_hosts, comm.local_rank) == (2, 2, 1, comm.rank)
        assert comm.peer(1 - comm.rank)["link"] == "inproc" and comm.peer(comm.rank)["link"] is None
        with pytest.raises(IndexError):
            comm.peer(2)
        assert "all_reduce" in comm.explain("all_reduce", 1 << 20)
        ring = comm.with_options(algorithm="ring", timeout=5)
        assert ring.timeout.total_seconds() == 5 and comm.timeout.total_seconds() == 300
        assert ring.all_reduce(np.ones(1)) == 2
        comm.close()
        assert comm.closed and not ring.closed and "closed" in repr(comm)
        with pytest.raises(paceline.InvalidArgument, match="closed"):
            comm.barrier()
        with ring:
            assert ring.all_reduce(np.ones(1)) == 2
        assert ring.closed

    on_threads(2, work)


def test_a_group_runs_once_and_not_after_an_error() -> None:
    comm = Comm.in_process(1)[0]
    group = comm.group()
    with pytest.raises(KeyError), group:
        group.all_reduce(np.ones(2))
        raise KeyError
    result = group.all_reduce(np.ones(2))
    group.run()
    np.testing.assert_array_equal(result, [1, 1])
    with pytest.raises(paceline.InvalidArgument, match="has run"):
        group.barrier()
