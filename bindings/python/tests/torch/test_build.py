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


def test_processes_compile_once(tmp_path: pathlib.Path) -> None:
    # A compiler that only counts: the real one takes minutes.
    program = """
import pathlib, sys, time
from paceline.torch import _build
def compile(folder, verbose):
    with open(folder / "count", "a") as count:
        count.write("x")
    time.sleep(0.5)
_build._compile = compile
_build._import = lambda path: path
_build.build()
"""
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environment(PACELINE_TORCH_CACHE=str(tmp_path))) for _ in range(3)
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert [path.read_text() for path in tmp_path.glob("*/count")] == ["x"]
