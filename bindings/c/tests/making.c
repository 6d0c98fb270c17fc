/* Processes that meet by a unique id that one writes to a file, and by a URL; and communicators made of others.
 * Arguments: rank, size, which rank makes the id, the file, the URL. */
#include "check.h"

#include <unistd.h>

static void check_sum(pclComm_t comm, int want_rank, int want_size) {
  int rank, size, value, error = -1;
  OK(pclCommUserRank(comm, &rank));
  OK(pclCommCount(comm, &size));
  CHECK(rank == want_rank && size == want_size, "rank %d of %d", rank, size);
  value = rank + 1;
  OK(pclAllReduce(&value, &value, 1, pclInt32, pclSum, comm, NULL));
  CHECK(value == size * (size + 1) / 2, "the sum is %d", value);
  pclResult_t result = pclInternalError;
  OK(pclCommGetAsyncError(comm, &result));
  CHECK(result == pclSuccess, "%d", (int)result);
  OK(pclCommCuDevice(comm, &error));
  CHECK(error == PCL_DEVICE_NONE, "device %d", error);
}

static void read_id(const char *path, pclUniqueId *id) {
  for (int turn = 0; turn < 10000; turn++) {
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
      size_t count = fread(id, 1, sizeof *id, file);
      fclose(file);
      if (count == sizeof *id) return;
    }
    usleep(1000);
  }
  CHECK(0, "no id in %s", path);
}

static void write_id(const char *path, pclUniqueId id) {
  char draft[4096];
  snprintf(draft, sizeof draft, "%s.draft", path);
  FILE *file = fopen(draft, "wb");
  CHECK(file != NULL && fwrite(&id, 1, sizeof id, file) == sizeof id && fclose(file) == 0, "writing %s", draft);
  CHECK(rename(draft, path) == 0, "renaming %s", draft);
}

int main(int argc, char **argv) {
  CHECK(argc == 6, "%d arguments", argc);
  const int rank = atoi(argv[1]), size = atoi(argv[2]), maker = atoi(argv[3]);
  check_rank = rank;
  pclUniqueId id;
  if (rank == maker) {
    OK(pclGetUniqueId(&id));
    write_id(argv[4], id);
  } else {
    read_id(argv[4], &id);
  }
  pclConfig_t config = PCL_CONFIG_INITIALIZER;
  config.name = "first";
  config.timeoutMs = 30000;
  config.initTimeoutMs = 20000;
  pclComm_t first, second, even, twin;
  OK(pclCommInitRankConfig(&first, size, id, rank, &config));
  check_sum(first, rank, size);
  FAILS(pclInvalidArgument, "of first (n = ", pclBcast(NULL, 1, pclInt8, 0, first, NULL));

  config.links = "tcp";
  OK(pclCommInitFromUrl(&second, size, argv[5], rank, &config));
  check_sum(second, rank, size);
  char text[256];
  OK(pclCommPeer(second, (rank + 1) % size, text, sizeof text, NULL));
  CHECK(strstr(text, "tcp") != NULL, "%s", text);
  int local_rank, local_size, hosts;
  OK(pclCommLocality(second, &local_rank, &local_size, &hosts));
  CHECK(local_rank >= 0 && local_size >= 1 && hosts >= 1, "%d %d %d", local_rank, local_size, hosts);

  /* The other way round; of the last, only rank 0 is left. */
  OK(pclCommSplit(first, 0, -rank, &even, NULL));
  check_sum(even, size - 1 - rank, size);
  OK(pclCommDestroy(even));
  OK(pclCommSplit(first, rank == 0 ? 5 : PCL_SPLIT_NOCOLOR, 0, &even, NULL));
  CHECK((even == NULL) == (rank != 0), "who has no color has no communicator");
  if (even != NULL) check_sum(even, 0, 1);
  OK(pclCommDuplicate(first, &twin, NULL));
  OK(pclCommDestroy(first));
  check_sum(twin, rank, size);

  void *memory;
  const void *theirs;
  const size_t count = 1 << 19;
  OK(pclCommMemAlloc(twin, &memory, 4 * count));
  float *values = memory;
  for (size_t i = 0; i < count; i++) values[i] = (float)(rank + 1);
  OK(pclBarrier(twin, NULL));
  OK(pclCommMemPeer(memory, (rank + 1) % size, 4 * count, &theirs));
  CHECK(((const float *)theirs)[count - 1] == (float)((rank + 1) % size + 1), "a neighbour's memory");
  OK(pclBarrier(twin, NULL));
  OK(pclAllReduce(memory, memory, count, pclFloat, pclSum, twin, NULL));
  CHECK(values[0] == (float)(size * (size + 1) / 2) && values[count - 1] == values[0], "over registered memory");
  OK(pclCommDestroy(twin));
  CHECK(values[7] == values[0], "memory outlives its communicator");
  OK(pclCommMemFree(memory));
  if (even != NULL) OK(pclCommDestroy(even));
  OK(pclCommDestroy(second));
  return 0;
}
