/* A program for NCCL, one process and thread for several devices: the other usual shape. */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cmd)                                                                                                          \
  do {                                                                                                                      \
    int r = (int)(cmd);                                                                                                     \
    if (r != 0) {                                                                                                           \
      fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, r, ncclGetLastError(NULL));                                    \
      exit(1);                                                                                                              \
    }                                                                                                                       \
  } while (0)

enum { DEVICES = 4, SIZE = 1 << 18 };

int main(void) {
  ncclComm_t comms[DEVICES];
  int devs[DEVICES] = {0, 1, 2, 3};
  float *sendbuff[DEVICES], *recvbuff[DEVICES];
  float *host = (float *)malloc(SIZE * sizeof(float));
  cudaStream_t s[DEVICES];
  for (int i = 0; i < DEVICES; ++i) {
    CHECK(cudaSetDevice(i));
    CHECK(cudaMalloc((void **)&sendbuff[i], SIZE * sizeof(float)));
    CHECK(cudaMalloc((void **)&recvbuff[i], SIZE * sizeof(float)));
    for (int k = 0; k < SIZE; k++) host[k] = (float)i;
    CHECK(cudaMemcpy(sendbuff[i], host, SIZE * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(recvbuff[i], 0, SIZE * sizeof(float)));
    CHECK(cudaStreamCreate(s + i));
  }
  CHECK(ncclCommInitAll(comms, DEVICES, devs));
  for (int turn = 0; turn < 3; turn++) {
    CHECK(ncclGroupStart());
    for (int i = 0; i < DEVICES; ++i)
      CHECK(ncclAllReduce((const void *)sendbuff[i], (void *)recvbuff[i], SIZE, ncclFloat, ncclSum, comms[i], s[i]));
    CHECK(ncclGroupEnd());
    for (int i = 0; i < DEVICES; ++i) {
      CHECK(cudaSetDevice(i));
      CHECK(cudaStreamSynchronize(s[i]));
      CHECK(cudaMemcpy(host, recvbuff[i], SIZE * sizeof(float), cudaMemcpyDeviceToHost));
      for (int k = 0; k < SIZE; k++)
        if (host[k] != 6.0f) return 2;
    }
  }
  for (int i = 0; i < DEVICES; ++i) {
    CHECK(cudaSetDevice(i));
    CHECK(cudaFree(sendbuff[i]));
    CHECK(cudaFree(recvbuff[i]));
    CHECK(cudaStreamDestroy(s[i]));
    CHECK(ncclCommDestroy(comms[i]));
  }
  free(host);
  printf("Success\n");
  return 0;
}
