"""What may be passed: anything with the buffer protocol or DLPack, its elements in a row; and what is refused, and how."""

import array
import contextlib
import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import on_threads

import paceline

Comm = paceline.Communicator


class Tensor:
    """A tensor as another library has them: it has nothing but DLPack."""

    def __init__(self, values: Any, versions: bool) -> None:
        self.values = values
        self.versions = versions

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versions and options:
            raise TypeError("unexpected keyword")
        return self.values.__dlpack__(**options)

    def new_empty(self, shape: Any) -> "Tensor":
        return Tensor(np.empty(shape, self.values.dtype), self.versions)

    @property
    def shape(self) -> Any:
        return self.values.shape


def alone() -> Comm:
    return Comm.in_process(1)[0]


PLAIN = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
OTHERS = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", PLAIN + OTHERS)
def test_numbers_are_added_as_such(dtype: Any) -> None:
    def work(comm: Comm) -> None:
        result = comm.all_reduce(np.array([1, 2, comm.rank]).astype(dtype))
        assert result.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(result.astype(np.float64), [3, 6, 3])
        for op, last in [("prod", 0), ("min", 0), ("max", 2), ("avg", 1)]:
            result = comm.all_reduce(np.array([comm.rank]).astype(dtype), op)
            assert result.astype(np.float64) == last, op
        scaled = comm.all_reduce(np.array([2]).astype(dtype), paceline.PreMulSum(comm.rank))
        assert scaled.astype(np.float64) == 6

    on_threads(3, work)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_added(dtype: str) -> None:
    def work(comm: Comm) -> None:
        mine = np.array([1 + 2j, 3j * comm.rank], dtype)
        np.testing.assert_array_equal(comm.all_reduce(mine), [2 + 4j, 3j])
        np.testing.assert_array_equal(comm.all_gather(mine), [1 + 2j, 0, 1 + 2j, 3j])
        with pytest.raises(paceline.InvalidArgument, match="complex.*have no max; take sum or avg"):
            comm.all_reduce(mine, "max")

    on_threads(2, work)


def test_truth_values() -> None:
    def work(comm: Comm) -> None:
        mine = np.array([False, True, comm.rank == 0])
        either, both = comm.all_reduce(mine, "max"), comm.all_reduce(mine, "min")
        assert either.dtype == bool and either.tolist() == [False, True, True] and both.tolist() == [False, True, False]
        with pytest.raises(paceline.InvalidArgument, match="that are bool have no sum; take max for or, min for and"):
            comm.all_reduce(mine)

    on_threads(2, work)


@pytest.mark.parametrize(
    "dtype", ["int16", "uint16", ">i4", ">f8", "datetime64[s]", "S5", "U3", "longdouble", ml_dtypes.float8_e4m3b11fnuz]
)
def test_other_elements_move_but_are_not_reduced(dtype: Any) -> None:
    def work(comm: Comm) -> None:
        mine = np.arange(4 * (comm.rank + 1), 4 * (comm.rank + 2)).astype(dtype)
        every = np.arange(4, 12).astype(dtype)
        np.testing.assert_array_equal(comm.all_gather(mine), every)
        np.testing.assert_array_equal(comm.all_gather_v(mine, [4, 4]), every)
        with pytest.raises(paceline.InvalidArgument, match="opaque bytes have no sum"):
            comm.all_reduce(mine)

    on_threads(2, work)


def test_records_move() -> None:
    def work(comm: Comm) -> None:
        mine = np.array([(comm.rank, 0.5)], [("OP", "i4"), ("value", "f8")])
        assert comm.all_gather(mine).tolist() == [(0, 0.5), (1, 0.5)]

    on_threads(2, work)


@pytest.mark.parametrize("versions", [False, True])
def test_tensors_by_dlpack(versions: bool) -> None:
    def work(comm: Comm) -> None:
        mine = Tensor(np.full((2, 3), comm.rank + 1.0, np.float32), versions)
        out = Tensor(np.zeros((2, 3), np.float32), versions)
        assert comm.all_reduce(mine, out=out) is out and (out.values == 3).all()
        made = comm.all_reduce(mine)
        assert isinstance(made, Tensor) and (made.values == 3).all()
        assert comm.all_gather(mine).values.shape == (4, 3)
        assert comm.start_all_reduce(mine, out=mine).result() is mine and (mine.values == 3).all()
        truths = Tensor(np.array([comm.rank == 0]), versions)
        assert comm.all_reduce(truths, "max").values.tolist() == [True]
        with pytest.raises(paceline.InvalidArgument, match=r"rank \d of 2: .*input of all_reduce.*in a row"):
            comm.all_reduce(Tensor(np.zeros((4, 4))[:, 1:3], versions))

    on_threads(2, work)


@pytest.mark.parametrize("versions", [False, True])
def test_a_tensor_is_held_for_the_time_of_a_call_and_not_longer(versions: bool) -> None:
    tensor, comm = Tensor(np.ones(3), versions), alone()
    counts = [sys.getrefcount(tensor.values)]
    for _ in range(10):
        comm.all_reduce(tensor, out=tensor)
        comm.start_all_reduce(tensor, out=tensor).wait()
        comm.all_gather(tensor)
        with comm.group() as group:
            group.all_reduce(tensor, out=tensor)
        with contextlib.suppress(paceline.InvalidArgument):
            comm.all_reduce(tensor, "mean")
    del group
    counts.append(sys.getrefcount(tensor.values))
    assert counts[0] == counts[1]


def test_what_a_tensor_says_of_being_lent_is_kept() -> None:
    class Refuses:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it requires gradient")

    with pytest.raises(paceline.InvalidArgument, match="it requires gradient") as raised:
        alone().all_reduce(Refuses())
    assert isinstance(raised.value.__cause__, BufferError)


def test_a_tensor_that_is_read_only_is_not_written() -> None:
    values = np.zeros(3)
    values.setflags(write=False)
    with pytest.raises((paceline.InvalidArgument, BufferError)):
        alone().all_reduce(np.ones(3), out=Tensor(values, True))
    assert (values == 0).all()


BUFFERS = [
    bytearray(8),
    memoryview(bytearray(8)),
    array.array("i", [0, 0]),
    (ctypes.c_double * 1)(),
    np.zeros((2, 2), np.int16),
    np.zeros(()),
]


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_anything_with_the_buffer_protocol(buffer: Any) -> None:
    def work(comm: Comm) -> bytes:
        message = buffer if comm.rank == 1 else bytes(range(1, 9))
        if comm.rank == 1:
            comm.recv(memoryview(message).cast("B"), 0)
            return bytes(message)
        comm.send(message, 1)
        return message

    sent, received = on_threads(2, work)
    assert sent == received


def test_new_arrays_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline._allocate._numpy", None)

    def work(comm: Comm) -> None:
        result = comm.all_reduce(array.array("d", [1, 2]))
        assert isinstance(result, memoryview) and result.tolist() == [2, 4]
        assert comm.all_gather(array.array("d", [1, 2])).tolist() == [1, 2, 1, 2]

    on_threads(2, work)


def test_nothing_at_all() -> None:
    def work(comm: Comm) -> None:
        assert comm.all_reduce(np.zeros(0)).shape == (0,)
        assert comm.all_gather(np.zeros((0, 3))).shape == (0, 3)
        assert comm.broadcast(bytearray()) == b""

    on_threads(2, work)


REFUSED = [
    (lambda comm: comm.all_reduce(np.zeros((4, 4))[:, ::2]), "input of all_reduce don't lie in a row"),
    (lambda comm: comm.all_reduce(np.zeros((4, 4), order="F")), "numpy.ascontiguousarray"),
    (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(8)[::2]), "output of all_reduce don't lie in a row"),
    (lambda comm: comm.all_reduce(np.zeros(4, np.uint8), out=bytes(4)), "read-only"),
    (lambda comm: comm.broadcast(b"1234"), "read-only"),
    (lambda comm: comm.recv(b"1234", 0), "read-only"),
    (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(4, np.float32)), "holds float64 and the output float32"),
    (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(3)), "has 24 bytes but 32 are needed"),
    (lambda comm: comm.all_reduce(np.zeros(4), "mean"), "'mean' is no operator"),
    (lambda comm: comm.all_reduce(np.array([object()])), "mean something only in this process"),
    (lambda comm: comm.broadcast(np.zeros(4), 1), "the root 1 of broadcast is not below"),
    (lambda comm: comm.broadcast(np.zeros(4), -1), "ranks are numbered from 0"),
    (lambda comm: comm.all_gather_v(np.zeros(4), []), "takes one for each of 1 ranks"),
    (lambda comm: comm.scatter(None), "needs an array"),
    (lambda comm: comm.scatter_v(None, []), "takes one for each of 1 ranks"),
    (lambda comm: comm.broadcast(None), "needs an array"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_what_cannot_be_meant_is_refused_and_does_no_harm(call: Any, says: str) -> None:
    comm = alone()
    with pytest.raises(paceline.InvalidArgument, match=says) as raised:
        call(comm)
    assert isinstance(raised.value, ValueError) and raised.value.kind == "invalid argument"
    assert comm.all_reduce(np.ones(1)) == 1


def test_overlapping_arrays_are_refused() -> None:
    values = np.zeros(6)
    with pytest.raises(paceline.InvalidArgument, match="overlap by 16 bytes"):
        alone().all_reduce(values[:4], out=values[2:])


@pytest.mark.parametrize("nothing", [3, "text", None, object(), [1.0]])
def test_what_is_no_array_is_a_type_error(nothing: Any) -> None:
    with pytest.raises(TypeError, match="neither a buffer nor __dlpack__"):
        alone().all_reduce(nothing)


def test_blocks_must_come_out_even() -> None:
    def work(comm: Comm) -> None:
        for call in (comm.all_to_all, comm.reduce_scatter):
            with pytest.raises(paceline.InvalidArgument, match="5 elements are not 2 blocks"):
                call(np.zeros(5))
        with pytest.raises(paceline.InvalidArgument, match="3 rows can't be dealt out to 2 ranks"):
            comm.reduce_scatter(np.zeros((3, 2)))

    on_threads(2, work)


def test_a_buffer_is_held_for_the_time_of_a_call_and_not_longer() -> None:
    def work(comm: Comm) -> None:
        if comm.rank == 1:
            comm.recv(bytearray(1), 0)
            comm.send(bytes(8), 0)
            return
        message = bytearray(8)
        arriving = comm.start_recv(message, 1)
        with pytest.raises(BufferError):
            message.append(1)
        comm.send(bytes(1), 1)
        arriving.wait()
        del arriving
        message.append(1)
        assert len(message) == 9

    on_threads(2, work)
