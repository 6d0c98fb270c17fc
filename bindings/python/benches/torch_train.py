"""Time per step of DDP and FSDP2 on a GPT of nanoGPT's small size, paceline against gloo, run by run in turns.

python torch_train.py [--ranks 2] [--rounds 3] [--steps 12] [--width 384] [--layers 6]
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "torch"))

from ranks import torchrun  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("ranks", 2), ("rounds", 3), ("steps", 12), ("width", 384), ("layers", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    for way in ("ddp", "fsdp"):
        medians: dict[str, list[float]] = {"gloo": [], "paceline": []}
        losses = {}
        for _ in range(arguments.rounds):
            for backend, found in medians.items():
                size = [str(number) for number in (arguments.steps, arguments.width, arguments.layers)]
                lines = torchrun(arguments.ranks, "train.py", way, backend, *size, seconds=600)
                # The first steps make buckets and buffers.
                found.append(
                    statistics.median(max(step) for step in zip(*(line["times"][2:] for line in lines), strict=True))
                )
                losses[backend] = [line["losses"] for line in lines]
        apart = max(
            abs(ours - theirs)
            for mine, other in zip(losses["paceline"], losses["gloo"], strict=True)
            for ours, theirs in zip(mine, other, strict=True)
        )
        gloo, ours = (statistics.median(found) * 1e3 for found in medians.values())
        print(
            f"{way}, {arguments.ranks} ranks: gloo {gloo:.1f} ms, paceline {ours:.1f} ms, ratio {gloo / ours:.2f}; losses apart by {apart:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
