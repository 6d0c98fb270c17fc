/* What goes wrong between ranks. The argument names it; ranks come by the environment. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static pclComm_t comm;
static int rank, n;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The last error names this rank and exactly this peer. */
static void check_blame(pclResult_t want, int peer) {
  char words[64];
  pclResult_t result = pclSuccess;
  int peers[4] = {-1, -1, -1, -1};
  size_t count = 0;
  OK(pclGetLastErrorPeers(comm, &result, peers, 4, &count));
  CHECK(result == want && count == 1 && peers[0] == peer, "%d, %zu, %d: %s", (int)result, count, peers[0],
        pclGetLastError(comm));
  snprintf(words, sizeof words, "rank %d", peer);
  CHECK(strstr(pclGetLastError(comm), words) != NULL, "%s", pclGetLastError(comm));
  snprintf(words, sizeof words, "rank %d (n = %d)", rank, n);
  CHECK(strstr(pclGetLastError(comm), words) != NULL, "%s", pclGetLastError(comm));
}

static void late(void) {
  float one = 1;
  if (rank == n - 1) {
    sleep(2);
  } else {
    double start = now();
    OK(pclCommSetTimeout(comm, 500));
    FAILS(pclTimeout, "all_reduce", pclAllReduce(&one, &one, 1, pclFloat, pclSum, comm, NULL));
    CHECK(now() - start < 1.8, "it took %.1f s", now() - start);
    check_blame(pclTimeout, n - 1);
    pclResult_t error = pclSuccess;
    OK(pclCommGetAsyncError(comm, &error));
    CHECK(error == pclTimeout, "%d", (int)error);
  }
}

/* As `late`, of a started call that has a timeout of its own. */
static void late_work(void) {
  float one = 1;
  if (rank == n - 1) {
    sleep(2);
  } else {
    pclCall_t call = PCL_CALL_INITIALIZER;
    call.collective = pclCollAllReduce;
    call.sendbuff = call.recvbuff = &one;
    call.count = 1;
    call.datatype = pclFloat;
    call.timeoutMs = 500;
    pclWork_t work;
    OK(pclStart(&call, comm, NULL, &work));
    CHECK(pclWorkWait(work, 10) == pclInProgress, "it can't have ended");
    FAILS(pclTimeout, "pclStart", pclWorkWait(work, PCL_WAIT_FOREVER));
    check_blame(pclTimeout, n - 1);
    int done = 0;
    CHECK(pclWorkTest(work, &done) == pclTimeout && done, "a work that failed");
    OK(pclWorkFree(work));
  }
}

/* The last rank kills itself when all others have heard that the communicator is complete. */
static void last_is_killed(void) {
  int8_t byte = 0;
  if (rank < n - 1) {
    pclSend(&byte, 1, pclInt8, n - 1, comm, NULL);
    return;
  }
  for (int peer = 0; peer < n - 1; peer++) OK(pclRecv(&byte, 1, pclInt8, peer, comm, NULL));
  usleep(100000);
  raise(SIGKILL);
}

static void killed(void) {
  float one = 1;
  last_is_killed();
  double start = now();
  FAILS(pclRemoteError, "all_reduce", pclAllReduce(&one, &one, 1, pclFloat, pclSum, comm, NULL));
  CHECK(now() - start < 5, "it took %.1f s", now() - start);
  check_blame(pclRemoteError, n - 1);
  FAILS(pclRemoteError, "has failed", pclBarrier(comm, NULL));
}

/* Who makes no call learns it by asking. */
static void killed_unseen(void) {
  last_is_killed();
  pclResult_t error = pclSuccess;
  for (int turn = 0; error == pclSuccess && turn < 5000; turn++) {
    OK(pclCommGetAsyncError(comm, &error));
    usleep(1000);
  }
  CHECK(error == pclRemoteError, "%d", (int)error);
  check_blame(pclRemoteError, n - 1);
}

static void mismatch(void) {
  double values[8] = {0};
  pclResult_t result = rank == 0 ? pclAllReduce(values, values, 8, pclFloat, pclSum, comm, NULL)
                                 : pclAllReduce(values, values, 8, pclDouble, pclSum, comm, NULL);
  CHECK(result == pclMismatch, "%d: %s", (int)result, pclGetLastError(comm));
  const char *text = pclGetLastError(comm);
  CHECK(strstr(text, "float") != NULL && strstr(text, "double") != NULL, "%s", text);
}

static void *abort_soon(void *unused) {
  (void)unused;
  usleep(100000);
  OK(pclCommRevoke(comm, "the operator has had enough"));
  return NULL;
}

static void aborted(void) {
  pthread_t thread;
  if (rank == 0) CHECK(pthread_create(&thread, NULL, abort_soon, NULL) == 0, "pthread_create");
  float one = 1;
  if (rank == n - 1) {
    /* Makes no call before the others have failed. What they had sent by then may make a sum all the same. */
    sleep(1);
    if (pclAllReduce(&one, &one, 1, pclFloat, pclSum, comm, NULL) == pclAborted) one = 1;
  }
  FAILS(pclAborted, "the operator has had enough", pclAllReduce(&one, &one, 1, pclFloat, pclSum, comm, NULL));
  if (rank == 0) CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
  OK(pclCommAbort(comm));
  FAILS(pclInvalidArgument, "was freed", pclCommAbort(comm));
}

int main(int argc, char **argv) {
  CHECK(argc == 2, "%d arguments", argc);
  OK(pclCommInitFromEnv(&comm, NULL));
  OK(pclCommUserRank(comm, &rank));
  OK(pclCommCount(comm, &n));
  check_rank = rank;
  if (strcmp(argv[1], "late") == 0) late();
  else if (strcmp(argv[1], "late_work") == 0) late_work();
  else if (strcmp(argv[1], "killed") == 0) killed();
  else if (strcmp(argv[1], "killed_unseen") == 0) killed_unseen();
  else if (strcmp(argv[1], "mismatch") == 0) mismatch();
  else if (strcmp(argv[1], "aborted") == 0) aborted();
  else CHECK(0, "what is %s?", argv[1]);
  if (strcmp(argv[1], "aborted") != 0) OK(pclCommDestroy(comm));
  return 0;
}
