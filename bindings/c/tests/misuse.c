/* What callers do wrong: everything is answered, nothing crashes, and the communicator works afterwards. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static pclComm_t comm;

static void handles(void) {
  int number = 7, garbage[4] = {1, 2, 3, 4};
  FAILS(pclInvalidArgument, "NULL", pclCommCount(NULL, &number));
  FAILS(pclInvalidArgument, "no handle", pclCommCount((pclComm_t)(void *)garbage, &number));
  FAILS(pclInvalidArgument, "no handle", pclCommCount((pclComm_t)(uintptr_t)1, &number));
  FAILS(pclInvalidArgument, "never given out", pclCommCount((pclComm_t)((uintptr_t)comm + 16000), &number));
  FAILS(pclInvalidArgument, "NULL", pclCommCount(comm, NULL));
  FAILS(pclInvalidArgument, "a pclComm_t is given", pclWorkWait((pclWork_t)(void *)comm, 0));
  CHECK(number == 7, "a failed call writes its result");

  pclComm_t other;
  OK(pclCommInitAll(&other, 1, NULL));
  OK(pclCommCount(other, &number));
  OK(pclCommDestroy(other));
  FAILS(pclInvalidArgument, "was freed", pclCommCount(other, &number));
  FAILS(pclInvalidArgument, "was freed", pclBarrier(other, NULL));
  FAILS(pclInvalidArgument, "was freed", pclCommDestroy(other));
  FAILS(pclInvalidArgument, "was freed", pclCommAbort(other));
  FAILS(pclInvalidArgument, "NULL", pclCommDestroy(NULL));

  pclWork_t work;
  OK(pclStartBarrier(comm, NULL, &work));
  OK(pclWorkWait(work, PCL_WAIT_FOREVER));
  OK(pclWorkWait(work, PCL_WAIT_FOREVER));
  int done = 0;
  OK(pclWorkTest(work, &done));
  CHECK(done == 1, "an ended work");
  OK(pclWorkFree(work));
  FAILS(pclInvalidArgument, "was freed", pclWorkFree(work));
  FAILS(pclInvalidArgument, "was freed", pclWorkTest(work, &done));
  FAILS(pclInvalidArgument, "NULL", pclStartBarrier(comm, NULL, NULL));

  void *registered;
  OK(pclCommRegister(comm, garbage, sizeof garbage, &registered));
  OK(pclCommDeregister(comm, registered));
  FAILS(pclInvalidArgument, "was freed", pclCommDeregister(comm, registered));
  FAILS(pclInvalidArgument, "no memory", pclCommRegister(comm, NULL, 4, &registered));

  void *memory;
  OK(pclMemAlloc(&memory, 10000));
  CHECK((uintptr_t)memory % 4096 == 0 && ((char *)memory)[9999] == 0, "pclMemAlloc");
  OK(pclMemFree(memory));
  FAILS(pclInvalidArgument, "freed before", pclMemFree(memory));
  OK(pclMemFree(NULL));
  FAILS(pclInvalidArgument, "no memory of pclMemAlloc", pclMemFree(garbage));
  FAILS(pclInvalidArgument, "more than memory", pclMemAlloc(&memory, SIZE_MAX));
  OK(pclCommMemAlloc(comm, &memory, 100));
  FAILS(pclInvalidArgument, "no memory of pclMemAlloc", pclMemFree(memory));
  FAILS(pclInvalidArgument, "out of range", pclCommMemPeer(memory, 1, 100, (const void **)&registered));
  OK(pclCommMemPeer(memory, 0, 100, (const void **)&registered));
  CHECK(registered == memory, "this rank's own memory");
  FAILS(pclInvalidUsage, "no 100000", pclCommMemPeer(memory, 0, 100000, (const void **)&registered));
  OK(pclCommMemFree(memory));
  FAILS(pclInvalidArgument, "freed before", pclCommMemFree(memory));
}

static void calls(void) {
  float input[8] = {0}, output[8] = {0};
  size_t counts[1] = {4}, wrong[1] = {SIZE_MAX / 4};
  FAILS(pclInvalidArgument, "sendbuff is NULL", pclAllReduce(NULL, output, 8, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "recvbuff is NULL", pclAllReduce(input, NULL, 8, pclFloat, pclSum, comm, NULL));
  OK(pclAllReduce(NULL, NULL, 0, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "the type 12", pclAllReduce(input, output, 8, (pclDataType_t)12, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "the type -1", pclAllReduce(input, output, 8, (pclDataType_t)-1, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "the operator 5", pclAllReduce(input, output, 8, pclFloat, (pclRedOp_t)5, comm, NULL));
  FAILS(pclInvalidArgument, "the operator 999", pclAllReduce(input, output, 8, pclFloat, (pclRedOp_t)999, comm, NULL));
  FAILS(pclInvalidArgument, "more than memory", pclAllReduce(input, output, SIZE_MAX, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "beyond all addresses",
        pclAllReduce(input, (void *)(UINTPTR_MAX - 3), 8, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "overlap", pclAllReduce(input, input + 2, 4, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "negative", pclBroadcast(input, output, 8, pclFloat, -1, comm, NULL));
  FAILS(pclInvalidArgument, "not below", pclBroadcast(input, output, 8, pclFloat, 1, comm, NULL));
  FAILS(pclInvalidArgument, "recvcounts is NULL", pclAllGatherV(input, output, NULL, NULL, pclFloat, comm, NULL));
  FAILS(pclInvalidArgument, "more than memory", pclAllGatherV(input, output, wrong, NULL, pclFloat, comm, NULL));
  FAILS(pclInvalidArgument, "aligned",
        pclAllGatherV(input, output, (size_t *)((char *)counts + 1), NULL, pclFloat, comm, NULL));
#ifndef PACELINE_WITH_CUDA
  FAILS(pclInvalidArgument, "without CUDA", pclBarrier(comm, (pclStream_t)0x1));
#else
  FAILS(pclInvalidUsage, "has no device", pclBarrier(comm, (pclStream_t)0x1));
#endif
  pclRedOp_t op;
  float factor = 2;
  OK(pclRedOpCreatePreMulSum(&op, &factor, pclFloat, pclScalarHostImmediate, comm));
  FAILS(pclInvalidArgument, "was made for float", pclAllReduce(input, output, 8, pclDouble, op, comm, NULL));
  OK(pclRedOpDestroy(op, comm));
  FAILS(pclInvalidArgument, "no operator", pclRedOpDestroy(op, comm));
  FAILS(pclInvalidArgument, "none that was made", pclAllReduce(input, output, 8, pclFloat, op, comm, NULL));
  FAILS(pclInvalidArgument, "residence", pclRedOpCreatePreMulSum(&op, &factor, pclFloat, (pclScalarResidence_t)9, comm));

  pclCall_t call = PCL_CALL_INITIALIZER;
  FAILS(pclInvalidArgument, "NULL", pclRun(NULL, comm, NULL));
  call.version = 2;
  FAILS(pclInvalidArgument, "version 2", pclRun(&call, comm, NULL));
  call.version = 1;
  call.collective = (pclCollective_t)99;
  FAILS(pclInvalidArgument, "the collective 99", pclRun(&call, comm, NULL));
  call.size = 3;
  FAILS(pclInvalidArgument, "3 bytes", pclRun(&call, comm, NULL));
}

static void makings(void) {
  pclComm_t made = (pclComm_t)(uintptr_t)5;
  pclUniqueId id;
  memset(&id, 0x55, sizeof id);
  FAILS(pclInvalidArgument, "none of pclGetUniqueId", pclCommInitRank(&made, 2, id, 0));
  CHECK(made == NULL, "a failed making leaves a handle");
  FAILS(pclInvalidArgument, "NULL", pclGetUniqueId(NULL));
  OK(pclGetUniqueId(&id));
  FAILS(pclInvalidArgument, "not below", pclCommInitRank(&made, 2, id, 2));
  FAILS(pclInvalidArgument, "negative", pclCommInitRank(&made, 2, id, -1));
  FAILS(pclInvalidArgument, "nranks", pclCommInitRank(&made, 0, id, 0));
  FAILS(pclInvalidArgument, "NULL", pclCommInitRank(NULL, 1, id, 0));
  FAILS(pclInvalidArgument, "url is NULL", pclCommInitFromUrl(&made, 2, NULL, 0, NULL));
  FAILS(pclInvalidArgument, "http:// is not known", pclCommInitFromUrl(&made, 2, "http://a:1", 0, NULL));
  pclConfig_t config = PCL_CONFIG_INITIALIZER;
  config.links = "pigeons";
  FAILS(pclInvalidArgument, "pigeons", pclCommInitFromUrl(&made, 1, "local://a", 0, &config));
  config.links = NULL;
  config.version = 2;
  FAILS(pclInvalidArgument, "version 2", pclCommInitFromUrl(&made, 1, "local://a", 0, &config));
  config.version = 1;
  config.magic = 0;
  FAILS(pclInvalidArgument, "magic", pclCommInitFromUrl(&made, 1, "local://a", 0, &config));
  config.size = 1 << 20;
  FAILS(pclInvalidArgument, "PCL_CONFIG_INITIALIZER", pclCommInitFromUrl(&made, 1, "local://a", 0, &config));
#ifndef PACELINE_WITH_CUDA
  pclConfig_t device = PCL_CONFIG_INITIALIZER;
  device.device = 0;
  FAILS(pclInvalidUsage, "without CUDA", pclCommInitFromUrl(&made, 1, "local://a", 0, &device));
  FAILS(pclInvalidUsage, "without CUDA", pclCommAttach(comm, 0));
#endif
  /* One that an older program wrote: shorter than this library's. */
  pclConfig_t older = PCL_CONFIG_INITIALIZER;
  older.size = offsetof(pclConfig_t, links);
  older.timeoutMs = 1234;
  older.links = "pigeons";
  older.device = 77;
  OK(pclCommInitFromUrl(&made, 1, "local://a", 0, &older));
  uint64_t timeout;
  OK(pclCommGetTimeout(made, &timeout));
  CHECK(timeout == 1234, "the timeout is %d", (int)timeout);
  OK(pclCommSetTimeout(made, 99));
  OK(pclCommGetTimeout(made, &timeout));
  CHECK(timeout == 99, "the timeout is %d", (int)timeout);
  OK(pclCommSetTimeout(made, 0));
  OK(pclCommGetTimeout(made, &timeout));
  CHECK(timeout == 1234, "the timeout is %d", (int)timeout);
  OK(pclCommDestroy(made));
  FAILS(pclInvalidArgument, "negative", pclCommSplit(comm, -2, 0, &made, NULL));
  OK(pclCommSplit(comm, PCL_SPLIT_NOCOLOR, 0, &made, NULL));
  CHECK(made == NULL, "a rank without a color");
}

static void groups(void) {
  float input[4] = {1, 2, 3, 4}, output[4];
  pclWork_t work;
  FAILS(pclInvalidUsage, "no group", pclGroupEnd());
  FAILS(pclInvalidUsage, "no group", pclGroupEndStart(&work));
  OK(pclGroupStart());
  OK(pclGroupEnd());
  OK(pclGroupStart());
  FAILS(pclInvalidUsage, "in a group", pclStartBarrier(comm, NULL, &work));
  OK(pclAllReduce(input, output, 4, pclFloat, pclSum, comm, NULL));
  OK(pclAllReduce(NULL, output, 4, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidArgument, "call 1 of the group", pclGroupEnd());
  FAILS(pclInvalidUsage, "no group", pclGroupEnd());
  OK(pclGroupStart());
  OK(pclGroupStart());
  OK(pclAllReduce(input, output, 4, pclFloat, pclSum, comm, NULL));
  FAILS(pclInvalidUsage, "within another", pclGroupEndStart(&work));
  OK(pclGroupEnd());
  OK(pclGroupEnd());
  CHECK(output[3] == 4, "a nested group");
  pclComm_t gone;
  OK(pclCommInitAll(&gone, 1, NULL));
  OK(pclGroupStart());
  OK(pclBarrier(gone, NULL));
  OK(pclCommDestroy(gone));
  FAILS(pclInvalidArgument, "was freed", pclGroupEnd());
}

static void texts(void) {
  char text[12];
  size_t needed = 0;
  OK(pclCommPeer(comm, 0, text, sizeof text, &needed));
  CHECK(strlen(text) == 11 && needed > 12 && strncmp(text, "host ", 5) == 0, "%s", text);
  OK(pclCommPeer(comm, 0, NULL, 0, &needed));
  FAILS(pclInvalidArgument, "NULL", pclCommPeer(comm, 0, NULL, 5, NULL));
  FAILS(pclInvalidArgument, "out of range", pclCommPeer(comm, 1, text, sizeof text, NULL));
  FAILS(pclInvalidArgument, "message", pclCommExplain(comm, pclCollSend, 8, text, sizeof text, NULL));
  OK(pclCommExplain(comm, pclCollAllReduce, 8, text, sizeof text, &needed));
  CHECK(strcmp(pclGetErrorString((pclResult_t)77), "no result of paceline's") == 0, "an unknown result");
  for (int i = 0; i < pclNumResults; i++) CHECK(strlen(pclGetErrorString((pclResult_t)i)) > 3, "result %d", i);
  FAILS(pclInvalidArgument, "level", pclSetLogCallback(NULL, NULL, (pclLogLevel_t)6));
}

static pclComm_t shared[2];

static void *in_a_call(void *unused) {
  (void)unused;
  float one = 1;
  pclResult_t result = pclAllReduce(&one, &one, 1, pclFloat, pclSum, shared[0], NULL);
  CHECK(result == pclAborted, "%d: %s", (int)result, pclGetLastError(NULL));
  FAILS(pclInvalidArgument, "was freed", pclBarrier(shared[0], NULL));
  return NULL;
}

/* A thread is in a call that can't end, since the other rank doesn't come. */
static void destroyed_during_a_call(void) {
  OK(pclCommInitAll(shared, 2, NULL));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, in_a_call, NULL) == 0, "pthread_create");
  usleep(50000);
  OK(pclCommDestroy(shared[0]));
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
  OK(pclCommDestroy(shared[1]));
}

static void destroyed_with_a_work(void) {
  float *one = malloc(sizeof *one);
  *one = 1;
  OK(pclCommInitAll(shared, 2, NULL));
  pclWork_t work;
  OK(pclStartAllReduce(one, one, 1, pclFloat, pclSum, shared[0], NULL, &work));
  CHECK(pclWorkWait(work, 20) == pclInProgress, "the other rank has not come");
  OK(pclCommDestroy(shared[0]));
  free(one);
  FAILS(pclAborted, "", pclWorkWait(work, PCL_WAIT_FOREVER));
  OK(pclWorkFree(work));
  OK(pclCommDestroy(shared[1]));
}

static void forked(void) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    pclResult_t error = pclSuccess;
    FAILS(pclInvalidArgument, "forked", pclBarrier(comm, NULL));
    FAILS(pclInvalidArgument, "forked", pclCommGetAsyncError(comm, &error));
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
}

int main(void) {
  int version = 0;
  OK(pclGetVersion(&version));
  CHECK(version == PCL_VERSION_CODE, "%d", version);
  FAILS(pclInvalidArgument, "NULL", pclGetVersion(NULL));
  OK(pclCommInitAll(&comm, 1, NULL));
  handles();
  calls();
  makings();
  groups();
  texts();
  destroyed_during_a_call();
  destroyed_with_a_work();
  forked();
  /* After all that. */
  float one = 1;
  pclResult_t error = pclInternalError;
  OK(pclAllReduce(&one, &one, 1, pclFloat, pclSum, comm, NULL));
  OK(pclCommGetAsyncError(comm, &error));
  CHECK(error == pclSuccess, "%d", (int)error);
  OK(pclCommDestroy(comm));
  return 0;
}
