"""Compiling paceline.torch: what is said where it can't be done, and that processes do it once."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="no PyTorch")

from ranks import environment  # noqa: E402


def build(**variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.torch", "build", "--quiet"]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=False)


def test_a_missing_compiler_is_named(tmp_path: pathlib.Path) -> None:
    done = build(PACELINE_TORCH_CACHE=str(tmp_path), CXX="no-such-compiler")
    assert done.returncode == 1
    assert "no C++ compiler: 'no-such-compiler' is not found" in done.stderr


def test_a_cache_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    done = build(PACELINE_TORCH_CACHE=str(tmp_path / "file" / "cache"))
    assert done.returncode == 1
    assert "set PACELINE_TORCH_CACHE" in done.stderr


# A compiler that only counts: the real one takes minutes.
COUNTING = """
import time
from paceline.torch import _build
def compile(folder, verbose):
    assert not (folder / "lock").exists()
    with open(folder / "count", "a") as count:
        count.write("x")
    time.sleep(0.5)
_build._compile = compile
_build._import = lambda path: path
"""


def counts(program: str, processes: int, cache: pathlib.Path) -> list[str]:
    command = [sys.executable, "-c", COUNTING + program]
    started = [subprocess.Popen(command, env=environment(PACELINE_TORCH_CACHE=str(cache))) for _ in range(processes)]
    assert [process.wait() for process in started] == [0] * processes
    return [path.read_text() for path in cache.glob("*/count")]


def test_processes_compile_once(tmp_path: pathlib.Path) -> None:
    assert counts("_build.build()", 3, tmp_path) == ["x"]


def test_what_a_killed_process_leaves_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    program = "folder = _build.cache() / _build._key(); folder.mkdir(); (folder / 'lock').touch(); _build.build()"
    assert counts(program, 1, tmp_path) == ["x"]
