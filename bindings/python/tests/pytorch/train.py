"""Trains a small GPT by one of PyTorch's ways, and prints the losses.

Run by torchrun: ``train.py WAY BACKEND [STEPS] [WIDTH] [LAYERS]``.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import paceline.torch  # noqa: F401

WORDS, LENGTH = 96, 32


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = 4
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def batches(me: int, steps: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(me)
    starts = [torch.randint(0, WORDS, (4, 1), generator=random) for _ in range(steps)]
    return [(start + torch.arange(LENGTH + 1) * 7) % WORDS for start in starts]


def shard(model: nn.Module) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def split(model: nn.Module) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def run(model: nn.Module, data: list[torch.Tensor]) -> tuple[list[float], list[float]]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses, times = [], []
    for tokens in data:
        began = time.perf_counter()
        loss = loss_of(model, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter() - began)
    return losses, times


def pipeline(model: GPT, me: int, n: int, data: list[torch.Tensor]) -> list[float]:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = copy.deepcopy(model)
            per = len(model.blocks) // n
            self.mine = range(me * per, (me + 1) * per)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            whole = self.whole
            if me == 0:
                x = whole.words(x) + whole.places(torch.arange(x.shape[1]))
            for block in self.mine:
                x = whole.blocks[block](x)
            return whole.head(whole.norm(x)) if me == n - 1 else x

    stage = PipelineStage(Part(), me, n, torch.device("cpu"))

    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    schedule = ScheduleGPipe(stage, 2, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=1e-3, foreach=False)
    means = []
    for tokens in data:
        losses: list[torch.Tensor] = []
        if me == 0:
            schedule.step(tokens[:, :-1])
        elif me == n - 1:
            schedule.step(target=tokens[:, 1:], losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(mean, n - 1)
        means.append(mean.item())
    return means


def checkpoint(model: nn.Module, data: list[torch.Tensor]) -> list[float]:
    import torch.distributed.checkpoint as dcp

    shard(model)
    run(model, data)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder[0])
    before = [parameter.to_local().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().zero_()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    model.load_state_dict(state["model"])
    for parameter, kept in zip(model.parameters(), before):
        assert torch.equal(parameter.to_local(), kept)
    return [loss_of(model, data[0]).item()]


def main() -> None:
    way, backend = sys.argv[1:3]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    width = int(sys.argv[4]) if len(sys.argv) > 4 else 32
    layers = int(sys.argv[5]) if len(sys.argv) > 5 else 4
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    me, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, times = GPT(width, layers), []
    # Only ranks that are parts of one model have one batch.
    data = batches(0 if way in ("tensor", "pipeline") else me, steps)
    if way == "ddp":
        losses, times = run(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1), data)
    elif way == "fsdp":
        shard(model)
        losses, times = run(model, data)
    elif way == "tensor":
        split(model)
        losses, times = run(model, data)
    elif way == "pipeline":
        losses = pipeline(model, me, n, data)
    elif way == "alone":
        losses, times = run(model, data)
    else:
        losses = checkpoint(model, data)
    dist.barrier()
    # In one piece: ranks share the pipe.
    sys.stdout.write(json.dumps({"rank": me, "losses": losses, "times": times}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
