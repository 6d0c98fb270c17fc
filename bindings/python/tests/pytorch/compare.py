"""Compares how PyTorch's tests ended on gloo and on paceline, and writes the lists into docs/torch.md.

    python compare.py gloo.json paceline.json [--document docs/torch.md]

Its status is 1 if a test that passes with gloo neither passes with paceline nor has a reason in ``REASONS``.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

BEGIN, END = "<!-- tests: begin -->", "<!-- tests: end -->"

# Why a test ends otherwise than with gloo.
REASONS: dict[str, str] = {
    "test_ddp_logging_data_cpu": "PyTorch's log of DDP calls every backend that is not its own `custom`, and the test compares names",
}


def lists(gloo: dict, paceline: dict) -> tuple[str, int]:
    def names(results: dict, outcome: str) -> set[str]:
        return {name for name, result in results.items() if result["outcome"] == outcome}

    both = names(gloo, "passed") & names(paceline, "passed")
    lost = names(gloo, "passed") - names(paceline, "passed")
    won = names(paceline, "passed") - names(gloo, "passed")
    skipped = names(gloo, "skipped") & names(paceline, "skipped")
    failed = names(gloo, "failed") & names(paceline, "failed")
    unexplained = {name for name in lost if name not in REASONS}
    lines = [
        f"{len(both)} tests pass with both, {len(lost)} with gloo only, {len(won)} with paceline only; "
        f"{len(failed)} fail with both, and {len(skipped)} are skipped with both "
        "(most of them need GPUs).",
        "",
    ]
    for title, group in (("Pass with gloo only", lost), ("Pass with paceline only", won), ("Fail with both", failed)):
        if group:
            lines += [f"{title}:", "", "| Test | Why |", "|---|---|"]
            for name in sorted(group):
                results = paceline if group is not won else gloo
                cause = REASONS.get(name) or last(results.get(name, {"text": "not run", "outcome": "not run"}))
                lines.append(f"| `{name}` | {cause} |")
            lines.append("")
    for title, group in (("Pass with both", both), ("Skipped with both", skipped)):
        lines += [
            f"<details><summary>{title}</summary>",
            "",
            ", ".join(f"`{name}`" for name in sorted(group)),
            "",
            "</details>",
            "",
        ]
    return "\n".join(lines), len(unexplained)


def last(result: dict) -> str:
    text = str(result.get("text", "")).strip().splitlines()
    return (text[-1] if text else result["outcome"]).replace("|", "\\|")[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gloo", type=pathlib.Path)
    parser.add_argument("paceline", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    arguments = parser.parse_args()
    text, unexplained = lists(json.loads(arguments.gloo.read_text()), json.loads(arguments.paceline.read_text()))
    if arguments.document:
        page = arguments.document.read_text()
        head, tail = page.split(BEGIN)[0], page.split(END)[1]
        arguments.document.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")
    else:
        print(text)
    print(f"{unexplained} tests pass with gloo, not with paceline, and no reason is given", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
