"""paceline.torch under torchrun: calls, training, and ranks that die or stop."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("torch", reason="no PyTorch")

from ranks import ends, processes, torchrun  # noqa: E402

STEPS = "6"
# With more ranks than cores jobs take some minutes.
TRAINED = [2, 4] if os.environ.get("PACELINE_FULL") == "1" else [2]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_calls_give_what_they_must(ranks: int) -> None:
    assert [line["rank"] for line in torchrun(ranks, "calls.py")] == list(range(ranks))


@pytest.mark.parametrize("ranks", TRAINED)
@pytest.mark.parametrize("way", ["ddp", "fsdp", "tensor", "pipeline"])
def test_training_gives_the_losses_of_gloo(way: str, ranks: int) -> None:
    ours = torchrun(ranks, "train.py", way, "paceline", STEPS)
    theirs = torchrun(ranks, "train.py", way, "gloo", STEPS)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["losses"] == pytest.approx(other["losses"], abs=1e-6)
        assert mine["losses"][-1] < mine["losses"][0]


def test_a_pipeline_gives_the_losses_of_one_process() -> None:
    parts = torchrun(2, "train.py", "pipeline", "paceline", STEPS)
    alone = torchrun(1, "train.py", "alone", "paceline", STEPS)
    assert parts[0]["losses"] == pytest.approx(alone[0]["losses"], abs=1e-4)


def test_checkpoints_are_read_back() -> None:
    assert len(torchrun(2, "train.py", "checkpoint", "paceline", "2")) == 2


@pytest.mark.parametrize(("how", "seconds", "limit"), [("killed", 30.0, 5.0), ("stuck", 4.0, 6.0)])
def test_every_rank_names_the_one_that_is_lost(how: str, seconds: float, limit: float) -> None:
    started = processes(4, "lost.py", how, str(seconds))
    # The one that is stuck never ends.
    others = [process for rank, process in enumerate(started) if rank != 1]
    outcomes = ends(others, 60)
    started[1].kill()
    started[1].communicate()
    for status, output in outcomes:
        assert status == 3, output
        text = output[output.index("raised after") :]
        assert float(re.search(r"after ([\d.]+) s", text)[1]) < limit, text
        assert "rank 1" in text, text


def test_ranks_that_call_different_things_all_raise() -> None:
    for status, output in ends(processes(3, "lost.py", "mismatch", "20"), 60):
        assert status == 3, output
        assert "100000" in output and "7" in output and "rank 1" in output, output
