/* Several ranks of one process, driven by one thread, in groups; and made by one. */
#include "check.h"

#include <pthread.h>

enum { N = 4, COUNT = 5000 };

static pclComm_t comms[N];
static int32_t input[N][COUNT * N], output[N][COUNT * N];

static void fill(void) {
  for (int r = 0; r < N; r++)
    for (int i = 0; i < COUNT * N; i++) {
      input[r][i] = r * 100000 + i;
      output[r][i] = -1;
    }
}

/* All ranks' calls of several kinds, and messages in an order in which they'd wait for each other. */
static void note_calls(void) {
  for (int r = 0; r < N; r++) OK(pclAllReduce(input[r], output[r], COUNT, pclInt32, pclSum, comms[r], NULL));
  for (int r = N - 1; r >= 0; r--) {
    OK(pclSend(input[r], COUNT, pclInt32, (r + 1) % N, comms[r], NULL));
    OK(pclRecv(output[r] + COUNT, COUNT, pclInt32, (r + N - 1) % N, comms[r], NULL));
    OK(pclSend(input[r] + 7, 10, pclInt32, r, comms[r], NULL));
    OK(pclRecv(output[r] + 3 * COUNT, 10, pclInt32, r, comms[r], NULL));
  }
  for (int r = 0; r < N; r++) OK(pclBroadcast(input[r], output[r] + 2 * COUNT, COUNT, pclInt32, 2, comms[r], NULL));
}

static void check_calls(void) {
  for (int r = 0; r < N; r++) {
    const int before = (r + N - 1) % N;
    for (int i = 0; i < COUNT; i++) {
      CHECK(output[r][i] == 100000 * (N * (N - 1) / 2) + N * i, "all_reduce, rank %d", r);
      CHECK(output[r][COUNT + i] == before * 100000 + i, "message, rank %d", r);
      CHECK(output[r][2 * COUNT + i] == 200000 + i, "broadcast, rank %d", r);
    }
    for (int i = 0; i < 10; i++) CHECK(output[r][3 * COUNT + i] == r * 100000 + 7 + i, "message to itself");
  }
}

static void uneven(void) {
  size_t counts[N];
  for (int r = 0; r < N; r++) counts[r] = (size_t)r + 2;
  OK(pclGroupStart());
  for (int r = 0; r < N; r++) OK(pclAllGatherV(input[r], output[r], counts, NULL, pclInt32, comms[r], NULL));
  /* The counts were copied. */
  memset(counts, 0xff, sizeof counts);
  OK(pclGroupEnd());
  for (int r = 0; r < N; r++) CHECK(output[r][2] == 100000 && output[r][5] == 200000, "all_gather_v, rank %d", r);
}

static void *destroy(void *comm) {
  OK(pclCommDestroy((pclComm_t)comm));
  return NULL;
}

int main(void) {
  OK(pclCommInitAll(comms, N, NULL));
  for (int turn = 0; turn < 3; turn++) {
    fill();
    OK(pclGroupStart());
    note_calls();
    OK(pclGroupEnd());
    check_calls();
    fill();
    pclWork_t work;
    OK(pclGroupStart());
    note_calls();
    OK(pclGroupEndStart(&work));
    OK(pclWorkWait(work, PCL_WAIT_FOREVER));
    OK(pclWorkFree(work));
    check_calls();
  }
  uneven();
  /* One call of a group is wrong: none of any rank has begun, so that the next ones are in step. */
  OK(pclGroupStart());
  for (int r = 0; r < N; r++) OK(pclBcast(input[r], 4, pclInt32, r == 2 ? 9 : 0, comms[r], NULL));
  FAILS(pclInvalidArgument, "not below", pclGroupEnd());
  fill();
  OK(pclGroupStart());
  note_calls();
  OK(pclGroupEnd());
  check_calls();
  for (int r = 0; r < N; r++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, destroy, comms[r]) == 0 && pthread_join(thread, NULL) == 0, "destroy");
  }

  /* All ranks of a unique id from one thread. */
  pclUniqueId id;
  OK(pclGetUniqueId(&id));
  OK(pclGroupStart());
  for (int r = 0; r < N; r++) OK(pclCommInitRank(&comms[r], N, id, r));
  pclWork_t work;
  FAILS(pclInvalidUsage, "makes communicators", pclGroupEndStart(&work));
  OK(pclGroupEnd());
  fill();
  OK(pclGroupStart());
  note_calls();
  OK(pclGroupEnd());
  check_calls();
  for (int r = 0; r < N; r++) OK(pclCommDestroy(comms[r]));
  return 0;
}
