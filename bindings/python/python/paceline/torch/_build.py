"""Compiles the extension, once for each version of PyTorch and of the sources, into a folder of the user's."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import sys
import types

_HERE = pathlib.Path(__file__).resolve().parent
_SOURCES = sorted((_HERE / "csrc").glob("*.cpp"))
_HEADERS = [*sorted((_HERE / "csrc").glob("*.h")), _HERE.parent / "include" / "paceline.h"]


class BuildError(RuntimeError):
    """The extension can't be compiled; the text says what is missing."""


def cache() -> pathlib.Path:
    """The folder for compiled extensions: ``PACELINE_TORCH_CACHE``, or ``paceline/torch`` in the user's cache."""
    named = os.environ.get("PACELINE_TORCH_CACHE")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "paceline" / "torch"


def _key() -> str:
    """What the compiled extension depends on."""
    import torch

    digest = hashlib.sha256()
    for part in (torch.__version__, str(torch.version.git_version), str(sys.implementation.cache_tag), sys.abiflags):
        digest.update(part.encode() + b"\0")
    for path in [*_SOURCES, *_HEADERS]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"torch{torch.__version__}-{digest.hexdigest()[:16]}"


def _compiler() -> str:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler.split()[0]) is None:
        raise BuildError(
            f"paceline.torch is compiled when it is first used, but there is no C++ compiler: {compiler!r} is not found. "
            "Install one (Debian: apt-get install g++), or set CXX to one."
        )
    return compiler


def _import(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("paceline_torch", path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(folder: pathlib.Path, verbose: bool) -> None:
    from torch.utils import cpp_extension

    _compiler()
    if not cpp_extension.is_ninja_available():
        raise BuildError(
            "paceline.torch is compiled when it is first used, but the tool ninja is not found. "
            "Install it: pip install ninja"
        )
    try:
        cpp_extension.load(
            name="paceline_torch",
            sources=[str(path) for path in _SOURCES],
            extra_include_paths=[str(_HERE.parent / "include")],
            extra_cflags=["-O2", "-Wall", "-fvisibility=hidden"],
            extra_ldflags=["-ldl"],
            build_directory=str(folder),
            verbose=verbose,
        )
    except (RuntimeError, ImportError) as error:
        raise BuildError(f"paceline.torch could not be compiled in {folder}: {error}") from error


def build(verbose: bool = False) -> types.ModuleType:
    """The extension, compiled if it was not before. Processes of one host compile it once: the others wait."""
    folder = cache() / _key()
    library = folder / "paceline_torch.so"
    done = folder / "done"
    if done.exists():
        return _import(library)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            f"the folder {folder} for what is compiled can't be made: {error}; set PACELINE_TORCH_CACHE to one that can"
        ) from error
    with open(folder / "build.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            # PyTorch's own lock, which a process that was killed here before has left, and which would be waited for
            # without end.
            (folder / "lock").unlink(missing_ok=True)
            _compile(folder, verbose)
            done.touch()
    return _import(library)
