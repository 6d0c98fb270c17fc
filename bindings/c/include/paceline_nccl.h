/*
 * paceline_nccl.h: the names of nccl.h, for programs written for NCCL, over paceline.h.
 *
 * Two ways, by which folder of these headers the compiler is given, so that <nccl.h> is found there:
 *   paceline-host/   memory of the host, without CUDA: <cuda_runtime.h> there gives out memory of the host, and streams that
 *                    do nothing, as every call blocks. (It defines PACELINE_NCCL_HOST.)
 *   paceline-cuda/   memory of devices, with CUDA's own <cuda_runtime.h> and a library built with CUDA. A communicator gets
 *                    the device that is current when it is made.
 *
 * What differs from NCCL is in docs/c.md. Not there: windows, one-sided calls, shrink and grow, suspend, parameters, the
 * interface for kernels, pnccl names.
 */
#ifndef PACELINE_NCCL_H_
#define PACELINE_NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <cuda_runtime.h>

#include "paceline.h"

/* The interface is the part named above of this version's. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22803
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

typedef pclComm_t ncclComm_t;
#define NCCL_COMM_NULL NULL
#define NCCL_UNIQUE_ID_BYTES PCL_UNIQUE_ID_BYTES
typedef pclUniqueId ncclUniqueId;

typedef pclResult_t ncclResult_t;
#define ncclSuccess pclSuccess
#define ncclUnhandledCudaError pclUnhandledCudaError
#define ncclSystemError pclSystemError
#define ncclInternalError pclInternalError
#define ncclInvalidArgument pclInvalidArgument
#define ncclInvalidUsage pclInvalidUsage
#define ncclRemoteError pclRemoteError
#define ncclInProgress pclInProgress
#define ncclTimeout pclTimeout
#define ncclNumResults pclNumResults

typedef pclDataType_t ncclDataType_t;
#define ncclInt8 pclInt8
#define ncclChar pclChar
#define ncclUint8 pclUint8
#define ncclInt32 pclInt32
#define ncclInt pclInt
#define ncclUint32 pclUint32
#define ncclInt64 pclInt64
#define ncclUint64 pclUint64
#define ncclFloat16 pclFloat16
#define ncclHalf pclHalf
#define ncclFloat32 pclFloat32
#define ncclFloat pclFloat
#define ncclFloat64 pclFloat64
#define ncclDouble pclDouble
#define ncclBfloat16 pclBfloat16
#define ncclFloat8e4m3 pclFloat8e4m3
#define ncclFloat8e5m2 pclFloat8e5m2
#define ncclNumTypes pclNumTypes

typedef pclRedOp_t ncclRedOp_t;
#define ncclSum pclSum
#define ncclProd pclProd
#define ncclMax pclMax
#define ncclMin pclMin
#define ncclAvg pclAvg
#define ncclNumOps pclNumOps
#define ncclMaxRedOp pclMaxRedOp

typedef pclScalarResidence_t ncclScalarResidence_t;
#define ncclScalarDevice pclScalarDevice
#define ncclScalarHostImmediate pclScalarHostImmediate

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR PCL_SPLIT_NOCOLOR
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Of these, commName means something here; the others are about kernels and networks of NCCL's, and are not looked at. With
 * blocking = 0 calls block all the same, and ncclCommGetAsyncError never says ncclInProgress. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
  int trafficClass;
  const char *commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                                             \
  { sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                      \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,      \
    NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,      \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }

/* What becomes of a stream: none for the host, where every call blocks; CUDA's default stream by its other name. */
#ifdef PACELINE_NCCL_HOST
#define PACELINE_NCCL_STREAM(stream) ((void)(stream), (pclStream_t)NULL)
#define PACELINE_NCCL_DEVICE PCL_DEVICE_NONE
#else
#define PACELINE_NCCL_STREAM(stream) ((stream) == NULL ? (pclStream_t)0x1 : (pclStream_t)(stream))
#define PACELINE_NCCL_DEVICE PCL_DEVICE_CURRENT
#endif

static inline pclConfig_t pacelineNcclConfig(const ncclConfig_t *config) {
  pclConfig_t mine = PCL_CONFIG_INITIALIZER;
  if (config != NULL && config->size > offsetof(ncclConfig_t, commName)) mine.name = config->commName;
  mine.device = PACELINE_NCCL_DEVICE;
  return mine;
}

static inline ncclResult_t ncclGetVersion(int *version) {
  if (version == NULL) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
static inline const char *ncclGetErrorString(ncclResult_t result) { return pclGetErrorString(result); }
static inline const char *ncclGetLastError(ncclComm_t comm) { return pclGetLastError(comm); }

static inline ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) { return pclGetUniqueId(uniqueId); }
static inline ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                                  ncclConfig_t *config) {
  pclConfig_t mine = pacelineNcclConfig(config);
  return pclCommInitRankConfig(comm, nranks, commId, rank, &mine);
}
static inline ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
  return ncclCommInitRankConfig(comm, nranks, commId, rank, NULL);
}
/* All ranks meet by the first id. */
static inline ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                    ncclUniqueId *commIds, ncclConfig_t *config) {
  if (nId < 1 || commIds == NULL) return ncclInvalidArgument;
  return ncclCommInitRankConfig(newcomm, nranks, commIds[0], myrank, config);
}
static inline ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
#ifndef PACELINE_NCCL_HOST
  int devices[1024];
  if (devlist == NULL && ndev <= 1024) {
    for (int i = 0; i < ndev; i++) devices[i] = i;
    return pclCommInitAll(comm, ndev, devices);
  }
#endif
  return pclCommInitAll(comm, ndev, devlist);
}
static inline ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  pclConfig_t mine = pacelineNcclConfig(config);
  return pclCommSplit(comm, color, key, newcomm, &mine);
}
static inline ncclResult_t ncclCommFinalize(ncclComm_t comm) { return pclCommFinalize(comm); }
static inline ncclResult_t ncclCommDestroy(ncclComm_t comm) { return pclCommDestroy(comm); }
static inline ncclResult_t ncclCommAbort(ncclComm_t comm) { return pclCommAbort(comm); }
static inline ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  (void)revokeFlags;
  return pclCommRevoke(comm, NULL);
}
static inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  return pclCommGetAsyncError(comm, asyncError);
}
static inline ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) { return pclCommCount(comm, count); }
static inline ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) { return pclCommUserRank(comm, rank); }
static inline ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
#ifdef PACELINE_NCCL_HOST
  (void)comm;
  if (device == NULL) return ncclInvalidArgument;
  return cudaGetDevice(device) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
#else
  return pclCommCuDevice(comm, device);
#endif
}

static inline ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
#ifdef PACELINE_NCCL_HOST
  return pclMemAlloc(ptr, size);
#else
  return cudaMalloc(ptr, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
#endif
}
static inline ncclResult_t ncclMemFree(void *ptr) {
#ifdef PACELINE_NCCL_HOST
  return pclMemFree(ptr);
#else
  return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
#endif
}
static inline ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
  return pclCommRegister(comm, buff, size, handle);
}
static inline ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) { return pclCommDeregister(comm, handle); }

static inline ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                                    ncclScalarResidence_t residence, ncclComm_t comm) {
#ifdef PACELINE_NCCL_HOST
  residence = ncclScalarHostImmediate;
#endif
  return pclRedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
}
static inline ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) { return pclRedOpDestroy(op, comm); }

static inline ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return pclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                      ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return pclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream) {
  return pclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream) {
  return pclBcast(buff, count, datatype, root, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                         ncclComm_t comm, cudaStream_t stream) {
  return pclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream) {
  return pclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclComm_t comm, cudaStream_t stream) {
  return pclAlltoAll(sendbuff, recvbuff, count, datatype, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream) {
  return pclGather(sendbuff, recvbuff, count, datatype, root, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                       int root, ncclComm_t comm, cudaStream_t stream) {
  return pclScatter(sendbuff, recvbuff, count, datatype, root, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  return pclSend(sendbuff, count, datatype, peer, comm, PACELINE_NCCL_STREAM(stream));
}
static inline ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  return pclRecv(recvbuff, count, datatype, peer, comm, PACELINE_NCCL_STREAM(stream));
}

static inline ncclResult_t ncclGroupStart(void) { return pclGroupStart(); }
static inline ncclResult_t ncclGroupEnd(void) { return pclGroupEnd(); }

#ifdef __cplusplus
}
#endif

#endif
