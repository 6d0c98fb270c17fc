"""paceline.torch over CUDA tensors under torchrun: calls, training, and ranks that die, stop or don't agree.

``.ci/torch-cuda`` runs this, on a simulated machine or on GPUs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="no PyTorch")

from ranks import HERE, ends, environment, processes, torchrun  # noqa: E402

MACHINE = os.environ.get("PACELINE_TEST_TORCH_CUDA", "")
if MACHINE not in ("simulated", "real"):
    pytest.skip("for a machine with GPUs or a simulated one: bash .ci/torch-cuda", allow_module_level=True)

only_simulated = pytest.mark.skipif(MACHINE != "simulated", reason="only a simulated machine can be without it")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_messages_streams_and_groups(ranks: int) -> None:
    assert [line["rank"] for line in torchrun(ranks, "cuda_calls.py", "paceline")] == list(range(ranks))


@pytest.mark.parametrize("how", ["values", "bound", "both"])
def test_two_ranks(how: str) -> None:
    assert len(torchrun(2, "cuda_calls.py", how, seconds=300)) == 2


@only_simulated
@pytest.mark.parametrize(
    "machine",
    [
        {"PACELINE_TEST_CUDA_NO_IPC": "1"},
        {"PACELINE_TEST_CUDA_DEVICES": "1"},
        {"PACELINE_TEST_CUDA_DELAY_US": "300", "PACELINE_TEST_CUDA_SEED": "7"},
    ],
    ids=["by the host", "one device", "slow streams"],
)
def test_other_machines(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    assert len(torchrun(2, "cuda_calls.py", "paceline")) == 2


def test_ddp_gives_the_losses_of_the_host() -> None:
    on_devices = torchrun(2, "cuda_train.py", "cuda", "paceline")
    on_hosts = torchrun(2, "cuda_train.py", "cpu", "gloo")
    for mine, other in zip(on_devices, on_hosts, strict=True):
        assert mine["losses"] == pytest.approx(other["losses"], abs=1e-6)
        assert mine["losses"][-1] < mine["losses"][0]


@pytest.mark.parametrize(
    ("how", "seconds", "limit", "words"),
    [
        ("killed", 30.0, 5.0, ["all_reduce", "rank 1"]),
        ("stuck", 4.0, 8.0, ["all_reduce", "rank 1", "Timed out"]),
        ("mismatch", 20.0, 8.0, ["all_reduce", "rank"]),
        ("absent", 3.0, 6.0, ["rank 1", "Timed out", "the first message"]),
        ("message", 20.0, 8.0, ["28 bytes", "400000"]),
        ("aborted", 20.0, 8.0, ["abort() of the process group was called"]),
    ],
)
def test_every_rank_is_told(how: str, seconds: float, limit: float, words: list[str]) -> None:
    ranks = 2 if how in ("absent", "message") else 3
    started = processes(ranks, "cuda_lost.py", how, str(seconds))
    # Rank 1 may be dead or asleep.
    others = [process for rank, process in enumerate(started) if rank != 1]
    outcomes = ends(others, 60)
    started[1].kill()
    started[1].communicate()
    for status, output in outcomes:
        assert status == 3, output
        # The call that went wrong says so, and not only the next one.
        text = output[output.index(f"raised in turn {0 if how == 'absent' else 5} ") :]
        assert float(re.search(r"raised in turn \d after ([\d.]+) s", text)[1]) < limit, text
        assert float(re.search(r"destroyed after ([\d.]+) s", text)[1]) < 2, text
        assert all(word in text for word in words), text


WITHOUT_CUDA = """
import torch, torch.distributed as dist
import paceline
paceline._paceline.has_cuda = False
import paceline.torch
dist.init_process_group("paceline")
dist.all_reduce(torch.ones(3))
try:
    dist.all_reduce(torch.empty(3, device="cuda"))
except RuntimeError as error:
    assert "built without CUDA: build it with its feature cuda" in str(error), error
else:
    raise SystemExit("it went through")
dist.destroy_process_group()
"""


def test_a_library_without_cuda_says_what_to_build() -> None:
    alone = environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CUDA], env=alone, cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
