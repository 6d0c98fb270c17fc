/* Every collective, over ranks that the environment describes: values, in place and apart, blocking and started. */
#include "check.h"

enum { N_MAX = 8, COUNT = 37 };

static pclComm_t comm;
static int rank, n;

/* How a call is made: 0 blocks, 1 is started and waited for, 2 is the only one of a group. */
static int way;

#define MAKE(blocking, starting)                                                                                            \
  do {                                                                                                                      \
    if (way == 1) {                                                                                                         \
      pclWork_t work;                                                                                                       \
      OK(starting);                                                                                                         \
      OK(pclWorkWait(work, PCL_WAIT_FOREVER));                                                                              \
      OK(pclWorkFree(work));                                                                                                \
    } else {                                                                                                                \
      if (way == 2) OK(pclGroupStart());                                                                                    \
      OK(blocking);                                                                                                         \
      if (way == 2) OK(pclGroupEnd());                                                                                      \
    }                                                                                                                       \
  } while (0)

static void reductions(size_t count) {
  for (int type = 0; type < pclNumTypes; type++) {
    const pclDataType_t t = (pclDataType_t)type;
    const size_t bytes = size_of(t) * count;
    char *input = malloc(bytes * (size_t)n + 1), *output = malloc(bytes * (size_t)n + 1);
    for (size_t i = 0; i < count * (size_t)n; i++) put(t, input, i, 1);
    memset(output, 0xee, bytes * (size_t)n + 1);
    MAKE(pclAllReduce(input, output, count, t, pclSum, comm, NULL),
         pclStartAllReduce(input, output, count, t, pclSum, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, n), "all_reduce, type %d, element %zu", type, i);
    CHECK((unsigned char)output[bytes] == 0xee, "all_reduce writes beyond its end");

    for (size_t i = 0; i < count; i++) put(t, output, i, rank + 1);
    MAKE(pclAllReduce(output, output, count, t, pclMax, comm, NULL),
         pclStartAllReduce(output, output, count, t, pclMax, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, n), "maximum, type %d", type);
    for (size_t i = 0; i < count; i++) put(t, output, i, rank + 1);
    OK(pclAllReduce(output, output, count, t, pclMin, comm, NULL));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, 1), "minimum, type %d", type);
    for (size_t i = 0; i < count; i++) put(t, output, i, rank == 0 ? 3 : rank == 1 ? 2 : 1);
    OK(pclAllReduce(output, output, count, t, pclProd, comm, NULL));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, n > 1 ? 6 : 3), "product, type %d", type);
    for (size_t i = 0; i < count; i++) put(t, output, i, 4);
    OK(pclAllReduce(output, output, count, t, pclAvg, comm, NULL));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, 4), "average, type %d", type);

    unsigned char scalar[8];
    pclRedOp_t scaled;
    put(t, scalar, 0, rank == 0 ? 2 : 1);
    OK(pclRedOpCreatePreMulSum(&scaled, scalar, t, pclScalarHostImmediate, comm));
    memset(scalar, 0, sizeof scalar);
    MAKE(pclAllReduce(input, output, count, t, scaled, comm, NULL),
         pclStartAllReduce(input, output, count, t, scaled, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, n + 1), "scaled, type %d", type);
    OK(pclRedOpDestroy(scaled, comm));

    const int root = n - 1;
    memset(output, 0, bytes);
    MAKE(pclReduce(input, rank == root ? output : NULL, count, t, pclSum, root, comm, NULL),
         pclStartReduce(input, rank == root ? output : NULL, count, t, pclSum, root, comm, NULL, &work));
    for (size_t i = 0; rank == root && i < count; i++) CHECK(holds(t, output, i, n), "reduce, type %d", type);

    MAKE(pclReduceScatter(input, output, count, t, pclSum, comm, NULL),
         pclStartReduceScatter(input, output, count, t, pclSum, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, output, i, n), "reduce_scatter, type %d", type);
    char *mine = input + (size_t)rank * bytes;
    MAKE(pclReduceScatter(input, mine, count, t, pclSum, comm, NULL),
         pclStartReduceScatter(input, mine, count, t, pclSum, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(holds(t, mine, i, n), "reduce_scatter in place, type %d", type);
    free(input);
    free(output);
  }
}

/* Element i of what rank `from` has for rank `to`. */
static int64_t value(int from, int to, size_t i) { return 1000000 * from + 1000 * to + (int64_t)i; }

static void moves(size_t count) {
  const size_t all = count * (size_t)n;
  int64_t *input = malloc(8 * all + 8), *output = malloc(8 * all + 8);
  const size_t me = (size_t)rank;
  for (int root = 0; root < n; root++) {
    for (size_t i = 0; i < count; i++) input[i] = rank == root ? value(root, 0, i) : -1;
    MAKE(pclBroadcast(rank == root ? input : NULL, output, count, pclInt64, root, comm, NULL),
         pclStartBroadcast(rank == root ? input : NULL, output, count, pclInt64, root, comm, NULL, &work));
    OK(pclBcast(input, count, pclInt64, root, comm, NULL));
    for (size_t i = 0; i < count; i++) CHECK(output[i] == value(root, 0, i) && input[i] == output[i], "broadcast");

    for (size_t i = 0; i < count; i++) input[i] = value(rank, 0, i);
    MAKE(pclGather(input, rank == root ? output : NULL, count, pclInt64, root, comm, NULL),
         pclStartGather(input, rank == root ? output : NULL, count, pclInt64, root, comm, NULL, &work));
    for (size_t i = 0; rank == root && i < all; i++) {
      CHECK(output[i] == value((int)(i / count), 0, i % count), "gather, %zu", i);
    }
    if (rank == root) memcpy(output + me * count, input, 8 * count);
    OK(pclGather(rank == root ? output + me * count : input, rank == root ? output : NULL, count, pclInt64, root, comm, NULL));
    for (size_t i = 0; rank == root && i < all; i++) {
      CHECK(output[i] == value((int)(i / count), 0, i % count), "gather in place, %zu", i);
    }

    for (size_t i = 0; i < all; i++) input[i] = value(root, (int)(i / count), i % count);
    MAKE(pclScatter(rank == root ? input : NULL, output, count, pclInt64, root, comm, NULL),
         pclStartScatter(rank == root ? input : NULL, output, count, pclInt64, root, comm, NULL, &work));
    for (size_t i = 0; i < count; i++) CHECK(output[i] == value(root, rank, i), "scatter, %zu", i);
    OK(pclScatter(rank == root ? input : NULL, rank == root ? input + me * count : output, count, pclInt64, root, comm, NULL));
    for (size_t i = 0; i < all; i++) CHECK(input[i] == value(root, (int)(i / count), i % count), "scatter in place");
  }
  for (size_t i = 0; i < count; i++) input[i] = value(rank, 0, i);
  MAKE(pclAllGather(input, output, count, pclInt64, comm, NULL),
       pclStartAllGather(input, output, count, pclInt64, comm, NULL, &work));
  for (size_t i = 0; i < all; i++) CHECK(output[i] == value((int)(i / count), 0, i % count), "all_gather, %zu", i);
  memset(output, 0, 8 * all);
  memcpy(output + me * count, input, 8 * count);
  MAKE(pclAllGather(output + me * count, output, count, pclInt64, comm, NULL),
       pclStartAllGather(output + me * count, output, count, pclInt64, comm, NULL, &work));
  for (size_t i = 0; i < all; i++) CHECK(output[i] == value((int)(i / count), 0, i % count), "all_gather in place, %zu", i);

  for (size_t i = 0; i < all; i++) input[i] = value(rank, (int)(i / count), i % count);
  MAKE(pclAlltoAll(input, output, count, pclInt64, comm, NULL),
       pclStartAlltoAll(input, output, count, pclInt64, comm, NULL, &work));
  OK(pclAlltoAll(input, input, count, pclInt64, comm, NULL));
  for (size_t i = 0; i < all; i++) {
    CHECK(output[i] == value((int)(i / count), rank, i % count) && output[i] == input[i], "all_to_all, %zu", i);
  }
  free(input);
  free(output);
}

/* Rank r has r + 1 elements for every other; blocks lie apart by one element, the last first. */
static void uneven(void) {
  size_t counts[N_MAX] = {0}, displs[N_MAX] = {0}, same[N_MAX] = {0}, total = 0;
  for (int r = n - 1; r >= 0; r--) {
    counts[r] = (size_t)r + 1;
    same[r] = (size_t)rank + 1;
    displs[r] = total;
    total += counts[r] + 1;
  }
  const size_t mine = counts[rank];
  int64_t input[64], output[64];
  CHECK(total <= 64 && (size_t)n * (size_t)n <= 64, "the test's buffers are too short");
  for (int packed = 0; packed < 2; packed++) {
    const size_t *places = packed ? NULL : displs;
    size_t starts[N_MAX], next = 0;
    for (int r = 0; r < n; r++) {
      starts[r] = packed ? next : displs[r];
      next += counts[r];
    }
#define EACH(body)                                                                                                          \
  for (int r = 0; r < n; r++)                                                                                               \
    for (size_t i = 0; i < counts[r]; i++) body
    for (size_t i = 0; i < mine; i++) input[i] = value(rank, 0, i);
    memset(output, 0, sizeof output);
    MAKE(pclAllGatherV(input, output, counts, places, pclInt64, comm, NULL),
         pclStartAllGatherV(input, output, counts, places, pclInt64, comm, NULL, &work));
    EACH(CHECK(output[starts[r] + i] == value(r, 0, i), "all_gather_v, rank %d, %zu", r, i));
    memset(output, 0, sizeof output);
    memcpy(output + starts[rank], input, 8 * mine);
    OK(pclAllGatherV(output + starts[rank], output, counts, places, pclInt64, comm, NULL));
    EACH(CHECK(output[starts[r] + i] == value(r, 0, i), "all_gather_v in place, rank %d, %zu", r, i));

    memset(output, 0, sizeof output);
    MAKE(pclGatherV(input, output, counts, places, pclInt64, 0, comm, NULL),
         pclStartGatherV(input, output, counts, places, pclInt64, 0, comm, NULL, &work));
    if (rank == 0) EACH(CHECK(output[starts[r] + i] == value(r, 0, i), "gather_v, rank %d, %zu", r, i));
    if (rank != 0) CHECK(output[0] == 0, "gather_v writes where it is not the root");

    EACH(input[starts[r] + i] = value(0, r, i));
    MAKE(pclScatterV(rank == 0 ? input : NULL, output, counts, places, pclInt64, 0, comm, NULL),
         pclStartScatterV(rank == 0 ? input : NULL, output, counts, places, pclInt64, 0, comm, NULL, &work));
    for (size_t i = 0; i < mine; i++) CHECK(output[i] == value(0, rank, i), "scatter_v, %zu", i);

    MAKE(pclReduceScatterV(input, output, counts, places, pclInt64, pclSum, comm, NULL),
         pclStartReduceScatterV(input, output, counts, places, pclInt64, pclSum, comm, NULL, &work));
    for (size_t i = 0; i < mine; i++) CHECK(output[i] == n * value(0, rank, i), "reduce_scatter_v, %zu", i);

    /* This rank sends rank + 1 elements to each, and gets r + 1 from rank r. */
    for (int r = 0; r < n; r++)
      for (size_t i = 0; i < mine; i++) input[(size_t)r * mine + i] = value(rank, r, i);
    memset(output, 0, sizeof output);
    MAKE(pclAlltoAllV(input, same, NULL, output, counts, places, pclInt64, comm, NULL),
         pclStartAlltoAllV(input, same, NULL, output, counts, places, pclInt64, comm, NULL, &work));
    EACH(CHECK(output[starts[r] + i] == value(r, rank, i), "all_to_all_v, rank %d, %zu", r, i));
  }
}

static void messages(size_t count) {
  int64_t *input = malloc(8 * count + 8), *output = malloc(8 * count + 8);
  const int next = (rank + 1) % n, before = (rank + n - 1) % n;
  for (size_t i = 0; i < count; i++) input[i] = value(rank, next, i);
  MAKE(pclSendRecv(input, count, next, output, count, before, pclInt64, comm, NULL),
       pclStartSendRecv(input, count, next, output, count, before, pclInt64, comm, NULL, &work));
  for (size_t i = 0; i < count; i++) CHECK(output[i] == value(before, rank, i), "send_recv, %zu", i);
  memset(output, 0, 8 * count);
  OK(pclGroupStart());
  OK(pclSend(input, count, pclInt64, next, comm, NULL));
  OK(pclRecv(output, count, pclInt64, before, comm, NULL));
  OK(pclGroupEnd());
  for (size_t i = 0; i < count; i++) CHECK(output[i] == value(before, rank, i), "send and recv in a group, %zu", i);
  if (n > 1) {
    pclWork_t sent, received;
    memset(output, 0, 8 * count);
    OK(pclStartRecv(output, count, pclInt64, before, comm, NULL, &received));
    OK(pclStartSend(input, count, pclInt64, next, comm, NULL, &sent));
    OK(pclWorkWait(received, PCL_WAIT_FOREVER));
    int done = 0;
    while (!done) OK(pclWorkTest(sent, &done));
    OK(pclWorkFree(sent));
    OK(pclWorkFree(received));
    for (size_t i = 0; i < count; i++) CHECK(output[i] == value(before, rank, i), "started messages, %zu", i);
    if (rank == 0) OK(pclSend(input, count, pclInt64, 1, comm, NULL));
    if (rank == 1) {
      OK(pclRecv(output, count, pclInt64, 0, comm, NULL));
      for (size_t i = 0; i < count; i++) CHECK(output[i] == value(0, 1, i), "recv, %zu", i);
    }
  }
  free(input);
  free(output);
}

static void as_data(void) {
  int32_t input[3] = {rank, 1, 2}, output[3 * N_MAX];
  pclCall_t call = PCL_CALL_INITIALIZER;
  OK(pclRun(&call, comm, NULL));
  call.collective = pclCollAllReduce;
  call.sendbuff = input;
  call.recvbuff = output;
  call.count = 3;
  call.datatype = pclInt32;
  call.op = pclMax;
  call.timeoutMs = 20000;
  call.algorithm = n > 1 ? "ring" : NULL;
  OK(pclRun(&call, comm, NULL));
  CHECK(output[0] == n - 1 && output[2] == 2, "pclRun");
  call.algorithm = "square";
  FAILS(pclInvalidArgument, "square", pclRun(&call, comm, NULL));
  size_t counts[N_MAX];
  for (int r = 0; r < n; r++) counts[r] = 3;
  call.collective = pclCollAllGather;
  call.recvcounts = counts;
  call.algorithm = NULL;
  pclWork_t work;
  OK(pclStart(&call, comm, NULL, &work));
  OK(pclWorkWait(work, 20000));
  OK(pclWorkFree(work));
  for (int r = 0; r < n; r++) CHECK(output[3 * r] == r, "pclStart");
}

int main(void) {
  OK(pclCommInitFromEnv(&comm, NULL));
  OK(pclCommUserRank(comm, &rank));
  OK(pclCommCount(comm, &n));
  check_rank = rank;
  CHECK(n <= N_MAX, "%d ranks", n);
  for (way = 0; way < 3; way++) {
    /* Twice: the second time takes the short way. */
    for (int turn = 0; turn < 2; turn++) reductions(COUNT);
    reductions(0);
    moves(COUNT);
    moves(20000);
    uneven();
    messages(COUNT);
    messages(100000);
    MAKE(pclBarrier(comm, NULL), pclStartBarrier(comm, NULL, &work));
  }
  as_data();
  OK(pclCommFinalize(comm));
  OK(pclCommDestroy(comm));
  return 0;
}
