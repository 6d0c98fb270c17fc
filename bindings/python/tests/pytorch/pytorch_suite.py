"""Runs the distributed tests that PyTorch ships in its wheel on one backend, and writes how each ended.

    python pytorch_suite.py --backend paceline --output paceline.json [--only TEXT ...] [--part 0/4]

The tests are ``torch/testing/_internal/distributed/distributed_test.py``. Which of them apply is decided there by the backend's
name, when the file is imported or while they run: it is imported under the name ``gloo``, so that all that gloo runs is run, and
the name is then replaced by one that the tests take for gloo's. Ranks are forked from this process, which has imported PyTorch already.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

ARGUMENTS = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ARGUMENTS.add_argument("--backend", choices=["gloo", "paceline"], required=True)
ARGUMENTS.add_argument("--output", type=pathlib.Path, help="results, as JSON; what is there is kept for other tests")
ARGUMENTS.add_argument("--only", nargs="*", default=[], help="tests whose names contain one of these")
ARGUMENTS.add_argument("--exact", action="store_true", help="names of --only are whole names")
ARGUMENTS.add_argument("--part", default="0/1", help="i/n: every n-th test, beginning with the i-th")
ARGUMENTS.add_argument("--ranks", default="3")
ARGUMENTS.add_argument("--limit", default="60", help="seconds for each test")
ARGUMENTS.add_argument("--allow", nargs="*", default=[], help="tests that may fail")
ARGUMENTS.add_argument("--again", help="only tests that the output says were skipped for a reason with this in it")
ARGUMENTS.add_argument("--missing", action="store_true", help="only tests that the output has nothing about")


def prepare(ranks: str, limit: str) -> None:
    folder = tempfile.mkdtemp(prefix="paceline-torch-")
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=ranks,
        TEMP_DIR=folder,
        INIT_METHOD=f"file://{folder}/shared_init_file",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=limit,
        OMP_NUM_THREADS="1",
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))


class Name(str):
    """The backend's name, which the tests take for gloo's when they choose what applies."""

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")


def suite_class(backend: str) -> type[unittest.TestCase]:
    import torch
    from torch.testing._internal.distributed import distributed_test

    if backend == "paceline":
        import paceline.torch  # noqa: F401

        # The ranks find it loaded.
        paceline.torch._load()
        distributed_test.BACKEND = Name("paceline")

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


class Results(unittest.TextTestResult):
    """Notes how each test ended, at once."""

    output: pathlib.Path | None = None
    known: dict[str, dict[str, object]] = {}
    began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        self.began = time.monotonic()
        super().startTest(test)

    def note(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        self.known[name] = {
            "outcome": outcome,
            "ranks": os.environ["WORLD_SIZE"],
            "seconds": round(time.monotonic() - self.began, 1),
            "text": text,
        }
        if self.output:
            self.output.write_text(json.dumps(self.known, indent=1, sort_keys=True))
        print(f"{outcome:7} {self.known[name]['seconds']:6} {name} {text.splitlines()[-1] if text else ''}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err) -> None:  # noqa: ANN001
        super().addFailure(test, err)
        self.note(test, "failed", self.shortened(test, err))

    def addError(self, test: unittest.TestCase, err) -> None:  # noqa: ANN001
        super().addError(test, err)
        self.note(test, "failed", self.shortened(test, err))

    def shortened(self, test: unittest.TestCase, err) -> str:  # noqa: ANN001
        text = self._exc_info_to_string(err, test)
        causes = [line for line in text.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        return text[-4000:] + "\n" + (causes[-1] if causes else "")


def main() -> int:
    arguments = ARGUMENTS.parse_args()
    prepare(arguments.ranks, arguments.limit)
    suite = suite_class(arguments.backend)
    names = unittest.TestLoader().getTestCaseNames(suite)
    if arguments.only:
        matches = (
            (lambda name: name in arguments.only)
            if arguments.exact
            else (lambda name: any(text in name for text in arguments.only))
        )
        names = [name for name in names if matches(name)]
    part, parts = map(int, arguments.part.split("/"))
    names = names[part::parts]
    Results.output = arguments.output
    if arguments.output and arguments.output.exists():
        Results.known = json.loads(arguments.output.read_text())
    if arguments.again:
        skipped = {name for name, result in Results.known.items() if result["outcome"] == "skipped"}
        names = [name for name in names if name in skipped and arguments.again in str(Results.known[name]["text"])]
    if arguments.missing:
        names = [name for name in names if name not in Results.known]
    tests = unittest.TestSuite(suite(name) for name in names)
    with open(os.devnull, "w", encoding="utf-8") as quiet:
        outcome = unittest.TextTestRunner(stream=quiet, resultclass=Results).run(tests)
    failures = [test.id().rsplit(".", 1)[-1] for test, _ in (*outcome.failures, *outcome.errors)]
    failed = len([name for name in failures if name not in arguments.allow])
    print(f"{outcome.testsRun} tests, {failed} failed, {len(outcome.skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
