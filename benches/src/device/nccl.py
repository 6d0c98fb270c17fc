"""all_reduce of NCCL, one process with a device for each rank: the loop of paceline's ranks.

Arguments: the library or '', how many ranks, rounds, milliseconds for each number, and the vectors' bytes. Prints `time` and
microseconds: for each round and size the device's time of a call, and the host's from a call until its end. If that can't be
measured it prints `refused` and the reason.
"""

import ctypes
import glob
import importlib.util
import os
import sys
import time

FLOAT, SUM = 7, 0


def libraries(named):
    if named:
        return [named]
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else []
    return [path for folder in folders for path in glob.glob(os.path.join(folder, "nccl/lib/libnccl.so.2"))] + ["libnccl.so.2"]


def skip(reason):
    print("refused", " ".join(str(reason).split()), flush=True)
    sys.exit(0)


def load(names):
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    skip(f"no library ({reasons[-1]}); pip install nvidia-nccl-cu12, or name libnccl.so.2 by --nccl")


class Driver:
    def __init__(self):
        self.library = load(["libcuda.so.1", "libcuda.so"])
        self("cuInit", 0)

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: error {status} of the driver")


class Nccl:
    def __init__(self, named):
        self.library = load(libraries(named))
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self("ncclGetVersion", ctypes.byref(version))
        self.version = version.value

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            said = self.library.ncclGetErrorString(status).decode()
            raise RuntimeError(f"{name}: {said}")


class Rank:
    """A device's context, stream, events and two vectors."""

    def __init__(self, driver, ordinal, longest):
        self.driver, self.context = driver, ctypes.c_void_p()
        driver("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ordinal)
        driver("cuCtxSetCurrent", self.context)
        self.input, self.output = ctypes.c_uint64(), ctypes.c_uint64()
        for vector in (self.input, self.output):
            driver("cuMemAlloc_v2", ctypes.byref(vector), ctypes.c_size_t(longest))
            driver("cuMemsetD8_v2", vector, ctypes.c_ubyte(0), ctypes.c_size_t(longest))
        self.stream, self.events = ctypes.c_void_p(), (ctypes.c_void_p(), ctypes.c_void_p())
        driver("cuStreamCreate", ctypes.byref(self.stream), 1)
        for event in self.events:
            driver("cuEventCreate", ctypes.byref(event), 0)

    def record(self, which):
        self.driver("cuCtxSetCurrent", self.context)
        self.driver("cuEventRecord", self.events[which], self.stream)

    def wait(self):
        self.driver("cuCtxSetCurrent", self.context)
        self.driver("cuStreamSynchronize", self.stream)

    def elapsed(self):
        took = ctypes.c_float()
        self.driver("cuEventElapsedTime", ctypes.byref(took), *self.events)
        return took.value / 1e3


def call(driver, nccl, ranks, comms, count):
    nccl("ncclGroupStart")
    for rank, comm in zip(ranks, comms):
        driver("cuCtxSetCurrent", rank.context)
        vectors = ctypes.c_void_p(rank.input.value), ctypes.c_void_p(rank.output.value)
        nccl("ncclAllReduce", *vectors, ctypes.c_size_t(count), FLOAT, SUM, ctypes.c_void_p(comm), rank.stream)
    nccl("ncclGroupEnd")


def measure(driver, nccl, ranks, comms, count, span):
    def wait():
        for rank in ranks:
            rank.wait()

    for _ in range(2):
        began = time.perf_counter()
        call(driver, nccl, ranks, comms, count)
        wait()
        one = time.perf_counter() - began
    iterations = int(min(max(span / max(one, 1e-7), 1), 200))
    for rank in ranks:
        rank.record(0)
    for _ in range(iterations):
        call(driver, nccl, ranks, comms, count)
    for rank in ranks:
        rank.record(1)
    wait()
    device = max(rank.elapsed() for rank in ranks)
    began = time.perf_counter()
    for _ in range(iterations):
        call(driver, nccl, ranks, comms, count)
        wait()
    return device / iterations, (time.perf_counter() - began) / iterations


def main():
    named, n, rounds, span = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) / 1e3
    sizes = [int(size) for size in sys.argv[5:]]
    nccl = Nccl(named)
    try:
        driver, devices = Driver(), ctypes.c_int()
        driver("cuDeviceGetCount", ctypes.byref(devices))
        places = [rank % devices.value for rank in range(n)]
        comms = (ctypes.c_void_p * n)()
        try:
            nccl("ncclCommInitAll", comms, n, (ctypes.c_int * n)(*places))
        except RuntimeError as error:
            if n > devices.value:
                where = "one device" if devices.value == 1 else f"one of {devices.value} devices"
                skip(f"NCCL can't run two ranks on {where} ({n} ranks, version {nccl.version}: {error})")
            raise
        ranks = [Rank(driver, place, max(sizes)) for place in places]
        for _ in range(rounds):
            for size in sizes:
                for seconds in measure(driver, nccl, ranks, comms, size // 4, span):
                    print(f"time {1e6 * seconds:.4f}", flush=True)
    except (RuntimeError, AttributeError) as error:
        skip(f"NCCL {nccl.version}: {error}")


main()
