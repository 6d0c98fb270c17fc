/* Calls over memory of CUDA devices, from one thread for several ranks. Ends with 77 where there is no driver. */
#include "check.h"

#include <dlfcn.h>

enum { N = 3, COUNT = 30000 };

static void *driver;

/* A function of the driver's, called with numbers and addresses; 0 is success. */
#define CU(name, ...)                                                                                                       \
  do {                                                                                                                      \
    int (*cu_function)() = (int (*)())dlsym(driver, #name);                                                                 \
    CHECK(cu_function != NULL, "the driver has no " #name);                                                                 \
    int cu_code = cu_function(__VA_ARGS__);                                                                                 \
    CHECK(cu_code == 0, #name " is %d", cu_code);                                                                           \
  } while (0)

static void *context[N];
static void *stream[N];
static uint64_t input[N], output[N];
static pclComm_t comms[N];
static float host[N * COUNT];

static void write_all(float (*value)(int rank, size_t i)) {
  for (int r = 0; r < N; r++) {
    for (size_t i = 0; i < N * COUNT; i++) host[i] = value(r, i);
    CU(cuCtxSetCurrent, context[r]);
    CU(cuMemcpyHtoD_v2, input[r], host, sizeof host);
    memset(host, 0, sizeof host);
    CU(cuMemcpyHtoD_v2, output[r], host, sizeof host);
  }
}

static void read_from(int rank, uint64_t address) {
  CU(cuCtxSetCurrent, context[rank]);
  CU(cuStreamSynchronize, stream[rank]);
  CU(cuMemcpyDtoH_v2, host, address, sizeof host);
}

static float rank_above(int rank, size_t i) {
  (void)i;
  return (float)(rank + 1);
}

static float place(int rank, size_t i) { return (float)(1000 * rank) + (float)(i / COUNT); }

int main(void) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  int devices = 0, (*init)(unsigned) = driver == NULL ? NULL : (int (*)(unsigned))dlsym(driver, "cuInit");
  if (init == NULL || init(0) != 0) return 77;
  CU(cuDeviceGetCount, &devices);
  if (devices == 0) return 77;
  int numbers[N];
  for (int r = 0; r < N; r++) {
    int device;
    numbers[r] = r % devices;
    CU(cuDeviceGet, &device, numbers[r]);
    CU(cuDevicePrimaryCtxRetain, &context[r], device);
    CU(cuCtxSetCurrent, context[r]);
    CU(cuMemAlloc_v2, &input[r], sizeof host);
    CU(cuMemAlloc_v2, &output[r], sizeof host);
    CU(cuStreamCreate, &stream[r], 1);
  }
  OK(pclCommInitAll(comms, N, numbers));
  int device = -5;
  OK(pclCommCuDevice(comms[1], &device));
  CHECK(device == numbers[1], "device %d", device);
#define IN(r) ((const char *)(uintptr_t)input[r])
#define OUT(r) ((char *)(uintptr_t)output[r])

  write_all(rank_above);
  OK(pclGroupStart());
  for (int r = 0; r < N; r++) OK(pclAllReduce(IN(r), OUT(r), COUNT, pclFloat, pclSum, comms[r], stream[r]));
  OK(pclGroupEnd());
  for (int r = 0; r < N; r++) {
    read_from(r, output[r]);
    for (size_t i = 0; i < COUNT; i++) CHECK(host[i] == 6, "all_reduce, rank %d, element %zu: %g", r, i, host[i]);
    CHECK(host[COUNT] == 0, "all_reduce writes beyond its end");
  }

  /* All to all by messages, each rank's in another order. */
  write_all(place);
  OK(pclGroupStart());
  for (int r = 0; r < N; r++)
    for (int k = 0; k < N; k++) {
      const int peer = (r * 2 + k) % N;
      OK(pclSend(IN(r) + 4 * COUNT * peer, COUNT, pclFloat, peer, comms[r], stream[r]));
      OK(pclRecv(OUT(r) + 4 * COUNT * peer, COUNT, pclFloat, peer, comms[r], stream[r]));
    }
  OK(pclGroupEnd());
  for (int r = 0; r < N; r++) {
    read_from(r, output[r]);
    for (size_t i = 0; i < N * COUNT; i++) {
      CHECK(host[i] == (float)(1000 * (i / COUNT)) + (float)r, "all to all, rank %d, element %zu: %g", r, i, host[i]);
    }
  }

  /* Beside the streams; the factor lies on the device. */
  write_all(rank_above);
  pclWork_t works[N];
  for (int r = 0; r < N; r++) {
    pclRedOp_t scaled;
    float factor = r == 0 ? 2 : 1;
    CU(cuCtxSetCurrent, context[r]);
    CU(cuMemcpyHtoD_v2, output[r] + 4 * COUNT, &factor, (size_t)4);
    OK(pclRedOpCreatePreMulSum(&scaled, OUT(r) + 4 * COUNT, pclFloat, pclScalarDevice, comms[r]));
    OK(pclStartAllReduce(IN(r), OUT(r), COUNT, pclFloat, scaled, comms[r], stream[r], &works[r]));
    OK(pclRedOpDestroy(scaled, comms[r]));
  }
  for (int r = 0; r < N; r++) {
    OK(pclWorkJoin(works[r], stream[r]));
    read_from(r, output[r]);
    CHECK(host[0] == 7 && host[COUNT - 1] == 7, "beside, rank %d: %g", r, host[0]);
    OK(pclWorkWait(works[r], PCL_WAIT_FOREVER));
    int done = 0;
    OK(pclWorkTest(works[r], &done));
    CHECK(done, "a work that has ended");
    OK(pclWorkFree(works[r]));
  }

  /* Memory of the host takes its turn behind. */
  float values[N] = {1, 2, 3};
  OK(pclGroupStart());
  for (int r = 0; r < N; r++) OK(pclAllReduce(&values[r], &values[r], 1, pclFloat, pclSum, comms[r], NULL));
  OK(pclGroupEnd());
  CHECK(values[0] == 6 && values[2] == 6, "over memory of the host: %g", values[0]);
  for (int r = 0; r < N; r++) {
    pclResult_t error = pclInternalError;
    OK(pclCommGetAsyncError(comms[r], &error));
    CHECK(error == pclSuccess, "%d", (int)error);
    FAILS(pclInvalidUsage, "attached before", pclCommAttach(comms[r], 0));
  }
  for (int r = 0; r < N; r++) OK(pclCommDestroy(comms[r]));
  return 0;
}
