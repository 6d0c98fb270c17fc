"""Trains with DDP on this rank's device, in several buckets: ``cuda_train.py DEVICE BACKEND``. Prints the losses."""

from __future__ import annotations

import json
import sys

import cuda_device
import torch
import torch.distributed as dist
from torch import nn

import paceline.torch  # noqa: F401


def losses_of(device: torch.device) -> list[float]:
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        generator = torch.Generator().manual_seed(1 + dist.get_rank())
        batches = [torch.randn(16, 32, generator=generator) for _ in range(6)]
    model = model.to(device)
    # About 4 KiB a bucket: a call for each layer, while the layers before it are still computed.
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.004, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, foreach=False)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = parallel(batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    kind, backend = sys.argv[1:3]
    device = cuda_device.take() if kind == "cuda" else torch.device("cpu")
    dist.init_process_group(backend)
    losses = losses_of(device)
    sys.stdout.write(json.dumps({"rank": dist.get_rank(), "losses": losses}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
