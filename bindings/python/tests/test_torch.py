"""Tensors of torch, where it is installed."""

from typing import Any

import pytest
from conftest import on_threads

import paceline

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

Comm = paceline.Communicator


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "float8_e4m3fn", "float8_e5m2"]
)
def test_tensors_are_reduced(dtype: str) -> None:
    def work(comm: Comm) -> None:
        tensor = torch.full((2, 2), comm.rank + 1.0).to(getattr(torch, dtype))
        result = comm.all_reduce(tensor)
        assert result.dtype == tensor.dtype and result.shape == tensor.shape
        assert (result.to(torch.float64) == 3).all()
        assert comm.all_reduce(tensor, "max", out=tensor) is tensor and (tensor.to(torch.float64) == 2).all()
        assert comm.all_gather(tensor).shape == (4, 2)
        assert comm.start_all_reduce(tensor, out=tensor).result() is tensor and (tensor.to(torch.float64) == 4).all()

    on_threads(2, work)


def test_truth_values_of_torch() -> None:
    def work(comm: Comm) -> None:
        tensor = torch.tensor([comm.rank == 0, False, True])
        assert comm.all_reduce(tensor, "max").tolist() == [True, False, True]
        assert comm.all_reduce(tensor, "min").tolist() == [False, False, True]
        comm.broadcast(tensor, 1)
        assert tensor.tolist() == [False, False, True]

    on_threads(2, work)


def test_views_and_gradients_are_refused_unless_they_lie_in_a_row() -> None:
    comm = Comm.in_process(1)[0]
    matrix = torch.zeros(4, 4)
    with pytest.raises(paceline.InvalidArgument, match="in a row"):
        comm.all_reduce(matrix.t()[1:])
    row = matrix[1]
    comm.all_reduce(torch.ones(4), out=row)
    assert matrix.sum() == 4 and (matrix[1] == 1).all()
    with pytest.raises(paceline.InvalidArgument, match="grad"):
        comm.all_reduce(torch.zeros(2, requires_grad=True))
