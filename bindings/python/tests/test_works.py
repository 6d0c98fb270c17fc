"""Started calls: waiting, not waiting, awaiting, and what holds their arrays."""

import asyncio
import gc
import time
import weakref
from datetime import timedelta

import numpy as np
import pytest
from conftest import on_threads

import paceline

Comm = paceline.Communicator


def test_a_work_ends_when_the_others_have_come() -> None:
    def work(comm: Comm) -> None:
        message = np.zeros(3)
        if comm.rank == 1:
            comm.recv(bytearray(1), 0)
            comm.send(np.ones(3), 0)
            return
        arriving = comm.start_recv(message, 1)
        assert not arriving.test() and "under way" in repr(arriving)
        begin = time.monotonic()
        assert arriving.wait(0.2) is False
        assert arriving.wait(timedelta(milliseconds=1)) is False and arriving.wait(0) is False
        assert time.monotonic() - begin < 5
        comm.send(bytes(1), 1)
        assert arriving.wait() is True and arriving.wait(0) is True
        assert arriving.test() and "ended" in repr(arriving)
        assert arriving.result() is message and arriving.result() is message
        np.testing.assert_array_equal(message, 1)

    on_threads(2, work)


def test_a_work_holds_its_arrays_and_its_communicator() -> None:
    class Watched(np.ndarray):
        pass

    def work(comm: Comm) -> None:
        part = comm.split(0)
        assert part is not None
        if comm.rank == 1:
            comm.recv(bytearray(1), 0)
            part.all_reduce(np.ones(1000))
            return
        mine = np.ones(1000).view(Watched)
        alive = weakref.ref(mine)
        started = part.start_all_reduce(mine, out=np.zeros(1000))
        del mine, part
        gc.collect()
        assert alive() is not None
        comm.send(bytes(1), 1)
        np.testing.assert_array_equal(started.result(), 2)
        del started
        gc.collect()
        assert alive() is None

    on_threads(2, work)


def test_a_call_goes_on_when_its_work_is_dropped() -> None:
    class Watched(np.ndarray):
        pass

    def work(comm: Comm) -> None:
        if comm.rank == 1:
            comm.recv(bytearray(1), 0)
            comm.send(np.ones(1000), 0)
            comm.barrier()
            return
        message = np.zeros(1000).view(Watched)
        plain, alive = message.view(np.ndarray), weakref.ref(message)
        comm.start_recv(message, 1)
        del message
        gc.collect()
        assert alive() is not None, "the call still writes there"
        comm.send(bytes(1), 1)
        comm.barrier()
        # Whoever ends the call can't let go of Python's objects: the next call in Python does.
        deadline = time.monotonic() + 10
        while alive() is not None and time.monotonic() < deadline:
            comm.with_options()
        assert alive() is None
        np.testing.assert_array_equal(plain, 1)

    on_threads(2, work)


def test_a_work_is_awaited() -> None:
    async def both(comm: Comm) -> None:
        first, second = comm.start_all_reduce(np.ones(3)), comm.start_all_gather(np.array([comm.rank]))
        results = await asyncio.gather(first, second)
        np.testing.assert_array_equal(results[0], 2)
        np.testing.assert_array_equal(results[1], [0, 1])
        assert await comm.start_barrier() is None

    on_threads(2, lambda comm: asyncio.run(both(comm)))


def test_the_loop_goes_on_while_a_work_is_awaited() -> None:
    async def waits(comm: Comm) -> None:
        message = np.zeros(1)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while turns < 5:
                await asyncio.sleep(0.01)
                turns += 1
            comm.send(bytes(1), 1)

        await asyncio.gather(comm.start_recv(message, 1), turn())
        assert turns == 5 and message == 7

    def work(comm: Comm) -> None:
        if comm.rank == 0:
            asyncio.run(waits(comm))
        else:
            comm.recv(bytearray(1), 0)
            comm.send(np.full(1, 7.0), 0)

    on_threads(2, work)


def test_a_works_error_is_raised_to_everyone_who_waits() -> None:
    def work(comm: Comm) -> None:
        if comm.rank == 1:
            comm.recv(bytearray(1), 0)
            comm.abort("enough of it")
            return
        started = comm.start_recv(np.zeros(1), 1)
        comm.send(bytes(1), 1)
        for _ in range(2):
            with pytest.raises(paceline.Aborted, match="rank 0 of 2: recv #1.*enough of it") as raised:
                started.wait()
        assert raised.value.rank == 0 and raised.value.reporter == 1
        assert raised.value.call is not None and raised.value.call.startswith("recv #1")

    on_threads(2, work)


def test_many_works_at_once() -> None:
    def work(comm: Comm) -> None:
        works = [comm.start_all_reduce(np.full(100, i)) for i in range(50)]
        for i, started in enumerate(works):
            np.testing.assert_array_equal(started.result(), 3 * i)

    on_threads(3, work)
