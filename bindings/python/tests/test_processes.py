"""Ranks that are processes: how they meet, what they say when something goes wrong, and signals while they wait."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import EXAMPLES, Job

import paceline


def test_processes_meet_as_the_environment_says() -> None:
    script = """
total = comm.all_reduce(np.full(100_000, comm.rank + 1.0))
assert (total == 6).all()
part = comm.split(comm.rank % 2)
print(comm.size, part.size, comm.local_size, comm.peer((comm.rank + 1) % 3)["link"])
"""
    with Job(3, script) as job:
        assert job.check() == ["3 2 3 shm\n", "3 1 3 shm\n", "3 2 3 shm\n"]


def test_options_go_before_the_environment() -> None:
    script = """
from datetime import timedelta
comm = paceline.Communicator.from_env(links=["tcp"], timeout=timedelta(seconds=7), job="a", algorithm="all_reduce=ring")
assert comm.timeout == timedelta(seconds=7), comm.timeout
print(comm.peer(1 - comm.rank)["link"], "ring" in comm.explain("all_reduce", 1 << 20), comm.all_reduce(np.ones(2)).tolist())
"""
    with Job(2, script, {"PACELINE_LINKS": "shm"}, joins=False) as job:
        assert job.check() == ["tcp True [2.0, 2.0]\n"] * 2


def test_processes_meet_at_a_url() -> None:
    script = """
meet, rank = os.environ.pop("PACELINE_RENDEZVOUS"), int(os.environ.pop("PACELINE_RANK"))
with paceline.Communicator.from_url(meet, rank, 2, token=b"a secret of ours", init_timeout=20) as comm:
    print(comm.all_gather(np.array([comm.rank])).tolist())
"""
    with Job(2, script, joins=False) as job:
        assert job.check() == ["[0, 1]\n"] * 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"links": "carrier pigeon"}, "no kind of link; take inproc, shm, rdma or tcp"),
        ({"timeout": -1}, "-1 seconds are no time to wait"),
        ({"algorithm": "all_reduce=nothing"}, "nothing"),
        ({"token": b"short"}, "a token has at least 8 bytes"),
        ({"profile": "/nowhere"}, "/nowhere"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, object], says: str) -> None:
    with pytest.raises(paceline.Error, match=says):
        paceline.Communicator.from_env(**options)  # type: ignore[arg-type]


def test_no_place_to_meet() -> None:
    with pytest.raises(paceline.RendezvousError, match="allowed: tcp://host:port"):
        paceline.Communicator.from_url("http://example.org", 0, 2)
    with pytest.raises(paceline.RendezvousError, match="rank 2 of 2 doesn't exist") as raised:
        paceline.Communicator.from_url("local://here", 2, 2)
    assert raised.value.rank is None and raised.value.kind == "rendezvous"


def test_a_rank_that_is_missing_is_named() -> None:
    script = """
try:
    paceline.Communicator.from_env(init_timeout=0.5)
except paceline.RendezvousError as error:
    print(error.peers, error)
"""
    with Job(1, script, {"PACELINE_SIZE": "2"}, joins=False) as job:
        (out,) = job.check()
        assert out.startswith("(1,) rendezvous: ") and "rank 1" in out


def test_a_rank_that_died_is_named() -> None:
    script = """
if comm.rank == 1:
    for other in (0, 2):
        comm.recv(np.zeros(1), other)
    os.kill(os.getpid(), signal.SIGKILL)
comm.send(np.zeros(1), 1)
try:
    comm.all_reduce(np.ones(10))
except paceline.PeerLost as error:
    assert isinstance(error, (paceline.Error, RuntimeError, ConnectionError)), error
    print(type(error).__name__, error.kind, error.rank, error.peers, error.call.split()[0], "|", error)
try:
    comm.barrier()
except paceline.PeerLost as error:
    print("has failed" in str(error))
"""
    with Job(3, script) as job:
        ends = job.ends()
        assert ends[1][0] == -signal.SIGKILL
        for rank in (0, 2):
            report, later = ends[rank][1].splitlines()
            assert report.startswith(f"PeerDied peer died {rank} (1,) all_reduce | rank {rank} of 3: all_reduce #"), report
            assert f"pid {job.ranks[1].pid}" in report and later == "True"


def test_a_rank_that_left_is_named() -> None:
    script = """
if comm.rank == 0:
    try:
        comm.recv(np.zeros(1), 1)
    except paceline.PeerLeft as error:
        print(error.peers)
"""
    with Job(2, script) as job:
        assert job.check()[0] == "(1,)\n"


def test_a_rank_that_does_not_come_is_a_timeout_of_paceline_and_of_python() -> None:
    script = """
if comm.rank == 1:
    comm.all_reduce(np.ones(1))
    time.sleep(1.5)
else:
    comm.all_reduce(np.ones(1))
    impatient = comm.with_options(timeout=0.5)
    try:
        impatient.all_reduce(np.ones(1))
    except TimeoutError as error:
        assert isinstance(error, paceline.TimeoutError) and isinstance(error, paceline.Error)
        print(error.peers, error.hint is None or bool(error.hint), "waited" in error.cause)
"""
    with Job(2, script) as job:
        assert job.check()[0] == "(1,) True True\n"


def test_ranks_that_call_different_things_are_told_so() -> None:
    script = """
try:
    comm.all_reduce(np.ones(4 + comm.rank))
except paceline.Mismatch as error:
    print("4 " in str(error) and "5 " in str(error))
"""
    with Job(2, script) as job:
        assert job.check() == ["True\n"] * 2


INTERRUPTED = {
    "recv": "comm.recv(np.zeros(1), 1)",
    "a large all_reduce": "comm.all_reduce(np.ones(1 << 22))",
    "barrier": "comm.barrier()",
    "group": "with comm.group() as group: group.recv(np.zeros(1), 1)",
    "split": "comm.split(0)",
    "while another thread waits": """
import threading
other = threading.Thread(target=lambda: failed(comm.recv, np.zeros(1), 1))
other.start()
time.sleep(0.3)
try:
    comm.recv(np.zeros(2), 1)
finally:
    other.join()
""",
}


@pytest.mark.parametrize("links", ["shm", "tcp"])
@pytest.mark.parametrize("call", INTERRUPTED.values(), ids=INTERRUPTED.keys())
def test_a_blocking_call_is_interrupted_and_the_others_are_told(call: str, links: str) -> None:
    indented = "\n".join("        " + line for line in call.splitlines())
    script = f"""
def failed(call, *arguments):
    try:
        call(*arguments)
    except paceline.Aborted:
        pass
comm.barrier()
if comm.rank == 0:
    print("waits", flush=True)
    try:
{indented}
    except KeyboardInterrupt as interrupt:
        cause = interrupt.__cause__
        assert cause is None or isinstance(cause, paceline.Aborted), cause
        print("interrupted", flush=True)
    try:
        comm.barrier()
    except paceline.Aborted as error:
        print("interrupted" in str(error))
else:
    begin = time.monotonic()
    try:
        comm.recv(np.zeros(7), 0)
    except paceline.Aborted as error:
        print(error.reporter, "interrupted" in str(error), time.monotonic() - begin < 15)
"""
    with Job(2, script, {"PACELINE_LINKS": links}) as job:
        assert job.line(0) == "waits"
        time.sleep(0.7)
        begin = time.monotonic()
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
        assert time.monotonic() - begin < 2
        assert job.check() == ["True\n", "0 True True\n"]


def test_a_work_survives_an_interrupt() -> None:
    script = """
if comm.rank == 0:
    message = np.zeros(3)
    arriving = comm.start_recv(message, 1)
    print("waits", flush=True)
    try:
        arriving.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    comm.send(np.ones(1), 1)
    print(arriving.result().tolist())
else:
    comm.recv(np.zeros(1), 0)
    comm.send(np.full(3, 5.0), 0)
"""
    with Job(2, script) as job:
        assert job.line(0) == "waits"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
        assert job.check() == ["[5.0, 5.0, 5.0]\n", ""]


def test_meeting_is_interrupted() -> None:
    script = """
print("waits", flush=True)
try:
    paceline.Communicator.from_env()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with Job(1, script, {"PACELINE_SIZE": "2"}, joins=False) as job:
        assert job.line(0) == "waits"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
        job.check()


def test_a_handler_that_raises_nothing_runs_and_the_call_goes_on() -> None:
    script = """
if comm.rank == 0:
    signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
    print("waits", flush=True)
    message = np.zeros(1)
    comm.recv(message, 1)
    print(message)
else:
    time.sleep(1.5)
    comm.send(np.ones(1), 0)
"""
    with Job(2, script) as job:
        assert job.line(0) == "waits"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGUSR1)
        assert job.line(0) == "handled"
        time.sleep(0.3)
        job.check()


def test_a_handler_may_abort_but_not_wait_for_ranks() -> None:
    script = """
def handle(*_):
    for waits in (comm.barrier, comm.start_barrier().wait, lambda: comm.split(0)):
        try:
            waits()
        except paceline.InvalidArgument as error:
            print("can't wait for ranks" in str(error), flush=True)
    comm.abort("told to end")
if comm.rank == 0:
    signal.signal(signal.SIGTERM, handle)
    print("waits", flush=True)
    try:
        comm.recv(np.zeros(1), 1)
    except paceline.Aborted as error:
        print("told to end" in str(error))
else:
    try:
        comm.recv(np.zeros(1), 0)
    except paceline.Aborted as error:
        print("told to end" in str(error))
"""
    with Job(2, script) as job:
        assert job.line(0) == "waits"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGTERM)
        assert job.check() == ["True\n" * 4, "True\n"]


def test_other_threads_run_while_one_waits() -> None:
    script = """
import threading
if comm.rank == 0:
    waits = threading.Thread(target=lambda: comm.recv(np.zeros(1), 1))
    waits.start()
    begin = time.process_time()
    turns = sum(1 for _ in range(1_000_000))
    comm.send(np.ones(1), 1)
    waits.join()
    print(turns)
else:
    comm.recv(np.zeros(1), 0)
    comm.send(np.ones(1), 0)
"""
    with Job(2, script) as job:
        assert job.check()[0] == "1000000\n"


def test_a_forked_child_must_not_use_its_parents_communicator() -> None:
    script = """
child = os.fork()
if child == 0:
    try:
        comm.barrier()
    except paceline.InvalidArgument as error:
        os._exit(0 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
comm.barrier()
"""
    with Job(2, script) as job:
        job.check()


def test_an_interpreter_ends_with_calls_under_way() -> None:
    script = """
if comm.rank == 0:
    work = comm.start_recv(np.zeros(1), 1)
    comm.start_recv(np.zeros(2), 1)
comm.barrier()
print("ends")
"""
    with Job(2, script) as job:
        assert job.check() == ["ends\n"] * 2


def test_the_example() -> None:
    command = [sys.executable, str(EXAMPLES / "all_reduce.py")]
    alone = os.environ | {"PACELINE_LAUNCHER": "none"}
    ended = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("rank 0 of 1: "), ended.stdout
