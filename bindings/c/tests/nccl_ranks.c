/* A program for NCCL, one process per rank: the usual shape, with nothing of paceline's in it. Arguments: rank, size, file. */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CUDACHECK(cmd)                                                                                                      \
  do {                                                                                                                      \
    cudaError_t e = (cmd);                                                                                                  \
    if (e != cudaSuccess) {                                                                                                 \
      fprintf(stderr, "%s:%d: CUDA: %s\n", __FILE__, __LINE__, cudaGetErrorString(e));                                      \
      exit(1);                                                                                                              \
    }                                                                                                                       \
  } while (0)
#define NCCLCHECK(cmd)                                                                                                      \
  do {                                                                                                                      \
    ncclResult_t r = (cmd);                                                                                                 \
    if (r != ncclSuccess) {                                                                                                 \
      fprintf(stderr, "%s:%d: NCCL: %s: %s\n", __FILE__, __LINE__, ncclGetErrorString(r), ncclGetLastError(NULL));          \
      exit(1);                                                                                                              \
    }                                                                                                                       \
  } while (0)

static void share(ncclUniqueId *id, int rank, const char *path) {
  if (rank == 0) {
    char draft[4096];
    snprintf(draft, sizeof draft, "%s.draft", path);
    FILE *file = fopen(draft, "wb");
    if (file == NULL || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 || rename(draft, path) != 0) exit(1);
    return;
  }
  for (int turn = 0; turn < 10000; turn++, usleep(1000)) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) continue;
    if (fread(id, sizeof *id, 1, file) != 1) exit(1);
    fclose(file);
    return;
  }
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const int rank = atoi(argv[1]), nranks = atoi(argv[2]);
  const size_t count = 100000;
  ncclUniqueId id;
  ncclComm_t comm;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.minCTAs = 4;
  config.commName = "training";
  if (rank == 0) NCCLCHECK(ncclGetUniqueId(&id));
  share(&id, rank, argv[3]);

  float *sendbuff, *recvbuff;
  cudaStream_t stream;
  CUDACHECK(cudaSetDevice(0));
  CUDACHECK(cudaMalloc(&sendbuff, count * sizeof(float)));
  CUDACHECK(cudaMalloc(&recvbuff, (size_t)nranks * count * sizeof(float)));
  CUDACHECK(cudaStreamCreate(&stream));
  NCCLCHECK(ncclCommInitRankConfig(&comm, nranks, id, rank, &config));
  float *host = (float *)malloc((size_t)nranks * count * sizeof(float));
  for (size_t i = 0; i < count; i++) host[i] = (float)(rank + 1);
  CUDACHECK(cudaMemcpyAsync(sendbuff, host, count * sizeof(float), cudaMemcpyHostToDevice, stream));

  NCCLCHECK(ncclAllReduce((const void *)sendbuff, (void *)recvbuff, count, ncclFloat, ncclSum, comm, stream));
  CUDACHECK(cudaMemcpyAsync(host, recvbuff, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CUDACHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < count; i++)
    if (host[i] != (float)(nranks * (nranks + 1) / 2)) return 3;

  NCCLCHECK(ncclAllGather(sendbuff, recvbuff, count, ncclFloat, comm, stream));
  CUDACHECK(cudaMemcpyAsync(host, recvbuff, (size_t)nranks * count * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CUDACHECK(cudaStreamSynchronize(stream));
  for (int r = 0; r < nranks; r++)
    if (host[(size_t)r * count] != (float)(r + 1)) return 4;

  /* All to all by messages. */
  const size_t part = count / (size_t)nranks;
  NCCLCHECK(ncclGroupStart());
  for (int peer = 0; peer < nranks; peer++) {
    NCCLCHECK(ncclSend(sendbuff + (size_t)peer * part, part, ncclFloat, peer, comm, stream));
    NCCLCHECK(ncclRecv(recvbuff + (size_t)peer * part, part, ncclFloat, peer, comm, stream));
  }
  NCCLCHECK(ncclGroupEnd());
  CUDACHECK(cudaMemcpyAsync(host, recvbuff, (size_t)nranks * part * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CUDACHECK(cudaStreamSynchronize(stream));
  for (int peer = 0; peer < nranks; peer++)
    if (host[(size_t)peer * part + part - 1] != (float)(peer + 1)) return 5;

  float scalar = 0.5f;
  ncclRedOp_t half;
  ncclComm_t sub;
  NCCLCHECK(ncclRedOpCreatePreMulSum(&half, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
  NCCLCHECK(ncclReduce(sendbuff, recvbuff, count, ncclFloat, half, 0, comm, NULL));
  CUDACHECK(cudaMemcpy(host, recvbuff, sizeof(float), cudaMemcpyDeviceToHost));
  if (rank == 0 && host[0] != (float)(nranks * (nranks + 1)) / 4) return 6;
  NCCLCHECK(ncclRedOpDestroy(half, comm));
  NCCLCHECK(ncclCommSplit(comm, rank % 2, rank, &sub, NULL));
  NCCLCHECK(ncclBroadcast(sendbuff, recvbuff, 1, ncclFloat, 0, sub, stream));
  CUDACHECK(cudaStreamSynchronize(stream));
  CUDACHECK(cudaMemcpy(host, recvbuff, sizeof(float), cudaMemcpyDeviceToHost));
  if (host[0] != (float)(rank % 2 + 1)) return 7;

  ncclResult_t state;
  int device;
  NCCLCHECK(ncclCommGetAsyncError(comm, &state));
  NCCLCHECK(ncclCommCuDevice(comm, &device));
  if (state != ncclSuccess || device != 0) return 8;
  NCCLCHECK(ncclCommDestroy(sub));
  NCCLCHECK(ncclCommFinalize(comm));
  NCCLCHECK(ncclCommDestroy(comm));
  CUDACHECK(cudaFree(sendbuff));
  CUDACHECK(cudaFree(recvbuff));
  CUDACHECK(cudaStreamDestroy(stream));
  free(host);
  return 0;
}
