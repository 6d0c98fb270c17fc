/*
 * paceline.h: collective communication between the ranks of a job, for C and C++.
 *
 * Names and the order of arguments are those of nccl.h with `pcl` for `nccl`; paceline_nccl.h maps the old names.
 * docs/c.md is the guide. What holds for every function:
 *
 * Results.   Every function that can fail returns a pclResult_t; pclSuccess is 0. pclGetLastError() has the text, which
 *            names the call, this rank, the ranks to blame and what to try. Panics don't cross into C: what would be one is
 *            pclInternalError. Only pclInvalidArgument and pclInvalidUsage leave a communicator usable; after any other error
 *            of a call it is dead: every later call gives the reason, and what is left to do is to destroy it.
 * Handles.   pclComm_t, pclWork_t and the handles of pclCommRegister are numbers in a table, not addresses. One that was
 *            never given out, was freed, or is of another kind gives pclInvalidArgument; no number is given out twice.
 * Memory.    Buffers need no alignment. Counts and displacements are in elements of the type, sizes in bytes.
 *            A blocking call borrows its buffers until it returns, a started one (pclStart...) until its work has ended, a
 *            call in a group until the group has ended. Arrays of counts, structs and strings are copied before a function
 *            returns. Strings are UTF-8 and end in 0.
 * In place.  A call is in place where the smaller buffer is this rank's part of the larger, as in NCCL: sendbuff == recvbuff
 *            for all_reduce, reduce, broadcast, all_to_all; sendbuff == recvbuff + rank * count elements for all_gather and,
 *            at the root, gather; recvbuff == sendbuff + rank * count elements for reduce_scatter and, at the root, scatter
 *            (with the displacement of this rank in the V variants). Buffers that overlap otherwise are an error.
 * Threads.   Every function may be called from any thread at any time. Ranks make the collective calls of a communicator in
 *            the same order; calls of different communicators don't wait for each other. Groups belong to their thread.
 * Streams.   `stream` is NULL for memory of the host: the call then blocks until this rank's part is done. Otherwise it is a
 *            CUstream or cudaStream_t, for a communicator with a device (pclConfig_t.device, pclCommAttach): the buffers are
 *            in memory of devices, and the call becomes work of the stream. CUDA's default stream, which is NULL there, is
 *            cudaStreamLegacy here. A library built without CUDA answers pclInvalidArgument to any other stream than NULL.
 * Time.      In milliseconds, as uint64_t. Every wait ends: at the call's timeout, or else the communicator's.
 * Fork.      A child must not use what its parent made: it gets an error.
 */
#ifndef PACELINE_H_
#define PACELINE_H_

#include <stddef.h>
#include <stdint.h>

#define PCL_MAJOR 0
#define PCL_MINOR 1
#define PCL_PATCH 0
#define PCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define PCL_VERSION_CODE PCL_VERSION(PCL_MAJOR, PCL_MINOR, PCL_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* Types */

/* One rank's membership of a group of ranks. */
typedef struct pclComm *pclComm_t;
/* A call, or a group of calls, that was started. */
typedef struct pclWork *pclWork_t;
/* NULL, or a CUstream or cudaStream_t. */
typedef void *pclStream_t;

/* 0 to 8 are NCCL's. */
typedef enum {
  pclSuccess = 0,
  /* The CUDA driver refused something. */
  pclUnhandledCudaError = 1,
  /* The operating system refused something. */
  pclSystemError = 2,
  /* A bug in paceline, or memory corrupted by something else. */
  pclInternalError = 3,
  /* An argument can't be meant: nothing was sent, and the communicator is as before. */
  pclInvalidArgument = 4,
  /* A call that can't be made now or in this build: nothing was sent, and the communicator is as before. */
  pclInvalidUsage = 5,
  /* A rank's process is gone, or a rank has destroyed its communicator while others still needed it. */
  pclRemoteError = 6,
  /* Not an error: it has not ended. */
  pclInProgress = 7,
  /* A deadline passed; the text and pclGetLastErrorPeers name the ranks that were waited for. */
  pclTimeout = 8,
  /* Ranks called different things. */
  pclMismatch = 9,
  /* Somebody called pclCommAbort or pclCommRevoke. */
  pclAborted = 10,
  /* The ranks did not find each other. */
  pclRendezvousError = 11,
  pclNumResults = 12
} pclResult_t;

/* The numbers are NCCL's. Booleans of one byte that are 0 or 1 are pclUint8: pclMax is "or", pclMin is "and". There are no
 * 16-bit integers. */
typedef enum {
  pclInt8 = 0, pclChar = 0,
  pclUint8 = 1, pclBool = 1,
  pclInt32 = 2, pclInt = 2,
  pclUint32 = 3,
  pclInt64 = 4,
  pclUint64 = 5,
  pclFloat16 = 6, pclHalf = 6,
  pclFloat32 = 7, pclFloat = 7,
  pclFloat64 = 8, pclDouble = 8,
  pclBfloat16 = 9,
  pclFloat8e4m3 = 10,
  pclFloat8e5m2 = 11,
  pclNumTypes = 12
} pclDataType_t;

/* The numbers are NCCL's. Integers wrap; NaN wins in minimum and maximum; an average is the sum, divided afterwards (integers:
 * towards 0). All ranks hold equal bits. There are no operators on bits. pclRedOpCreatePreMulSum makes further ones. */
typedef enum {
  pclSum = 0,
  pclProd = 1,
  pclMax = 2,
  pclMin = 3,
  pclAvg = 4,
  pclNumOps = 5,
  pclMaxRedOp = 0x7fffffff
} pclRedOp_t;

typedef enum { pclScalarDevice = 0, pclScalarHostImmediate = 1 } pclScalarResidence_t;

/* What a pclCall_t asks for. */
typedef enum {
  pclCollAllReduce = 1,
  pclCollReduce = 2,
  pclCollBroadcast = 3,
  pclCollAllGather = 4,
  pclCollReduceScatter = 5,
  pclCollAlltoAll = 6,
  pclCollGather = 7,
  pclCollScatter = 8,
  pclCollBarrier = 9,
  pclCollSend = 10,
  pclCollRecv = 11,
  pclCollSendRecv = 12
} pclCollective_t;

/* Results and logs */

/* The version of the library as PCL_VERSION_CODE: compare it with the header's. */
pclResult_t pclGetVersion(int *version);

/* What a result means, in words. Never NULL; the text is there for ever. */
const char *pclGetErrorString(pclResult_t result);

/* The last error's whole text: of `comm`'s calls from any thread, or, where `comm` is NULL or no communicator, of the calling
 * thread's calls. "" where there was none. Never NULL. A success doesn't clear it. The text belongs to the library and lasts
 * until the thread calls pclGetLastError again or ends. */
const char *pclGetLastError(pclComm_t comm);

/* Of the same error: its result, and the ranks (of its communicator) to look at first, dead, late, or of another opinion.
 * Writes at most `capacity` of them to `peers` and how many there are to `count`. `result` and `count` may be NULL, and
 * `peers` where `capacity` is 0. */
pclResult_t pclGetLastErrorPeers(pclComm_t comm, pclResult_t *result, int *peers, size_t capacity, size_t *count);

typedef enum { pclLogOff = 0, pclLogError = 1, pclLogWarn = 2, pclLogInfo = 3, pclLogDebug = 4, pclLogTrace = 5 } pclLogLevel_t;

/* `message` is one line without its end; `target` is the part of the library that says it. Both last until it returns. */
typedef void (*pclLogCallback_t)(pclLogLevel_t level, const char *target, const char *message, void *user);

/* Calls `callback` with all messages up to `level`, from any thread, also from several at once. It must not call this library
 * and must not block for long. Replaces the callback before; NULL for none. Once this returns, the callback before is not
 * called any more and not under way (so a callback must not call this). Until it is called the library says nothing.
 * pclInvalidUsage where the process has a log of another kind (programs in Rust). */
pclResult_t pclSetLogCallback(pclLogCallback_t callback, void *user, pclLogLevel_t level);

/* Communicators */

#define PCL_UNIQUE_ID_BYTES 128
/* Where and by what secret the ranks of one communicator meet. Whoever has it may join: pass it on privately. */
typedef struct {
  char internal[PCL_UNIQUE_ID_BYTES];
} pclUniqueId;

#define PCL_CONFIG_MAGIC 0x70636c31u
#define PCL_CONFIG_VERSION 1u
/* For `device`: this process's current CUDA device (device 0 where none is current). */
#define PCL_DEVICE_CURRENT (-2)
#define PCL_DEVICE_NONE (-1)

/* How a communicator is made. Start from PCL_CONFIG_INITIALIZER, which says for everything: as the environment says
 * (docs/environment.md: PACELINE_TIMEOUT and so on), else the default. The library reads `size` bytes and no more, so that
 * later versions can add members; an older library refuses a `version` that it doesn't know. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  /* A name for the communicator in messages of this interface; NULL: none. */
  const char *name;
  /* How long a call may wait; 0: the environment's, or 300 s. */
  uint64_t timeoutMs;
  /* How long ranks wait for each other at the start; 0: the environment's, or 120 s. */
  uint64_t initTimeoutMs;
  /* Kinds of links that may be used: of "inproc", "shm", "rdma", "tcp", with commas between. */
  const char *links;
  /* Network interfaces: "eth,ib", "=eth0", "^docker,lo". */
  const char *interfaces;
  /* Ports to listen on: "29500-29599". */
  const char *ports;
  /* The algorithm by collective: "all_reduce=ring,broadcast=binomial". The same on all ranks. */
  const char *algorithm;
  /* A name that all ranks of the job have; others are turned away. */
  const char *job;
  /* A secret that every rank must know, at least 8 bytes. Not looked at with a unique id, which has its own. */
  const char *token;
  /* TCP connections to each peer, 1 to 64; 0: measured or the environment's. */
  int tcpStreams;
  /* A CUDA device's number, PCL_DEVICE_CURRENT or PCL_DEVICE_NONE: as pclCommAttach at the end of the making. If any rank
   * names a device here, every rank must name one or call pclCommAttach(comm, PCL_DEVICE_NONE) next. */
  int device;
  /* Bytes of each device's memory that others write to (0: 16 MiB). The same on all ranks. */
  uint64_t deviceScratchBytes;
  /* From how many bytes on, of all ranks' blocks, pclAllGather and pclAlltoAll over devices' memory are left to copy engines,
   * so that they take no multiprocessor (0: as the environment says). The same on all ranks. */
  uint64_t deviceCopyEngineBytes;
} pclConfig_t;

#define PCL_CONFIG_INITIALIZER                                                                                              \
  { sizeof(pclConfig_t), PCL_CONFIG_MAGIC, PCL_CONFIG_VERSION, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0,           \
    PCL_DEVICE_NONE, 0, 0 }

/* A place for ranks to meet, which this process opens: it listens from now on. One of the ranks of *this process* must join
 * with the id (pclCommInitRank), and the id is good for one communicator. The listener is closed then, or by the end of the
 * process. */
pclResult_t pclGetUniqueId(pclUniqueId *id);

/* A new communicator of `nranks` ranks, of which this is `rank`. Every rank calls it with the same id; it returns when all have
 * come, or with pclRendezvousError, which names the missing ranks, after the time for that. In a group the calls are made
 * together at its end, each in a thread of its own: several ranks of one thread meet that way, and `*comm` is set then. */
pclResult_t pclCommInitRank(pclComm_t *comm, int nranks, pclUniqueId id, int rank);
/* As pclCommInitRank; `config` may be NULL. */
pclResult_t pclCommInitRankConfig(pclComm_t *comm, int nranks, pclUniqueId id, int rank, pclConfig_t *config);

/* Communicators of `ndev` ranks within this process, in rank order. `devlist` is NULL or has a CUDA device's number for each
 * rank, or PCL_DEVICE_NONE; a library without CUDA doesn't look at it. Drive them from one thread each, or from one thread
 * in groups. */
pclResult_t pclCommInitAll(pclComm_t *comms, int ndev, const int *devlist);

/* The communicator of all ranks as the environment says: PACELINE_RENDEZVOUS, PACELINE_RANK and PACELINE_SIZE, or what torchrun,
 * Open MPI, MPICH, Intel MPI or Slurm have set. Without any, one rank alone. `config` may be NULL. */
pclResult_t pclCommInitFromEnv(pclComm_t *comm, const pclConfig_t *config);

/* Ranks that meet at "tcp://host:port" (rank 0 listens there), "file:///path" (rank 0 writes its address there) or
 * "local://name" (one host). `config` may be NULL. */
pclResult_t pclCommInitFromUrl(pclComm_t *comm, int nranks, const char *url, int rank, const pclConfig_t *config);

#define PCL_SPLIT_NOCOLOR (-1)
/* Collective. Ranks of one `color` (0 or more) make a new communicator, ordered by `key`, then by their rank in `comm`.
 * With PCL_SPLIT_NOCOLOR `*newcomm` is NULL. The new one doesn't depend on `comm`, which may be destroyed. Of `config`, which
 * may be NULL, `name`, `timeoutMs` and the device are looked at; the device of `comm` is not taken over. */
pclResult_t pclCommSplit(pclComm_t comm, int color, int key, pclComm_t *newcomm, pclConfig_t *config);
/* Collective. A new communicator of the same ranks. `config` as for pclCommSplit. */
pclResult_t pclCommDuplicate(pclComm_t comm, pclComm_t *newcomm, pclConfig_t *config);

/* Waits until the calls that this rank started have ended, each within its timeout. The handle stays. Local. */
pclResult_t pclCommFinalize(pclComm_t comm);
/* Frees the handle. Local: it doesn't wait for other ranks. Calls still under way in other threads, and works that have not
 * ended, end with an error first; buffers are not touched once this has returned. */
pclResult_t pclCommDestroy(pclComm_t comm);
/* Ends all calls under way, on all ranks, with pclAborted, and frees the handle as pclCommDestroy. Local and bounded: may be
 * called while other threads are in calls of `comm`. */
pclResult_t pclCommAbort(pclComm_t comm);
/* As pclCommAbort, but the handle stays, so that pclGetLastError(comm) can be read. `reason` (may be NULL) stands in the text
 * of the error on every rank. */
pclResult_t pclCommRevoke(pclComm_t comm, const char *reason);

/* Whether the communicator still works, without waiting: `*asyncError` is pclSuccess, or the error that ended it. */
pclResult_t pclCommGetAsyncError(pclComm_t comm, pclResult_t *asyncError);

pclResult_t pclCommCount(pclComm_t comm, int *count);
pclResult_t pclCommUserRank(pclComm_t comm, int *rank);
/* The number of the CUDA device; PCL_DEVICE_NONE where there is none. */
pclResult_t pclCommCuDevice(pclComm_t comm, int *device);
/* This rank's number among those of its host, how many these are, and how many hosts there are. Each may be NULL. */
pclResult_t pclCommLocality(pclComm_t comm, int *localRank, int *localSize, int *hosts);
/* Where a rank runs, as "host, pid, link" in words; as snprintf, `text` is cut to `capacity` bytes with the 0 at the end.
 * `needed` (may be NULL) gets the bytes of all of it with the 0. */
pclResult_t pclCommPeer(pclComm_t comm, int rank, char *text, size_t capacity, size_t *needed);
/* Which algorithm a collective of `bytes` (the vector, or all ranks' blocks together) would run, and why. As pclCommPeer. */
pclResult_t pclCommExplain(pclComm_t comm, pclCollective_t collective, size_t bytes, char *text, size_t capacity, size_t *needed);
/* How long calls from now on may take; 0: what the communicator was made with. */
pclResult_t pclCommSetTimeout(pclComm_t comm, uint64_t timeoutMs);
pclResult_t pclCommGetTimeout(pclComm_t comm, uint64_t *timeoutMs);

/* Collective. Gives this rank its CUDA device (a number, PCL_DEVICE_CURRENT, or PCL_DEVICE_NONE), after which calls with a stream
 * may be made. Every rank calls it. pclInvalidUsage in a library without CUDA. */
pclResult_t pclCommAttach(pclComm_t comm, int device);

/* Operators */

/* The sum of each rank's elements times that rank's scalar, as an operator for calls of `comm` over this type. Each rank may
 * have another scalar. `scalar` points to one element: in memory of the host (pclScalarHostImmediate, read at once), or of
 * the device (pclScalarDevice: read at once too, so the stream that writes it must have got there). */
pclResult_t pclRedOpCreatePreMulSum(pclRedOp_t *op, void *scalar, pclDataType_t datatype, pclScalarResidence_t residence,
                                    pclComm_t comm);
pclResult_t pclRedOpDestroy(pclRedOp_t op, pclComm_t comm);

/* Memory */

/* Zeroed memory of the host, aligned to 4096 bytes. Freed by pclMemFree only. */
pclResult_t pclMemAlloc(void **ptr, size_t size);
pclResult_t pclMemFree(void *ptr);

/* Collective. Zeroed memory that the ranks of a host map from each other: calls of 1 MiB and more, all of whose buffers are
 * such memory of one allocation, read it in place rather than copy it through links. Sizes may differ between ranks. It is
 * memory like any other, and outlives the communicator until pclCommMemFree, which is local. */
pclResult_t pclCommMemAlloc(pclComm_t comm, void **ptr, size_t size);
pclResult_t pclCommMemFree(void *ptr);
/* The first `size` bytes of what `rank` got in the allocation in which this rank got `ptr`, where they lie. pclInvalidUsage if
 * they can't be reached (another host) or are fewer. To be read only while nobody writes there: barriers see to that. */
pclResult_t pclCommMemPeer(void *ptr, int rank, size_t size, const void **theirs);

/* For programs written for NCCL: paceline takes any memory in every call, so this only checks its arguments and gives a handle
 * that pclCommDeregister takes back. pclCommMemAlloc is what makes calls quicker. */
pclResult_t pclCommRegister(pclComm_t comm, void *buff, size_t size, void **handle);
pclResult_t pclCommDeregister(pclComm_t comm, void *handle);

/* Collectives */
/*
 * `n` is the communicator's size. pclX blocks (or, with a stream, puts the call into it); in a group it is noted, and made
 * at the group's end. pclStartX returns at once with a work in `*work`, which the caller frees (pclWorkFree); with a stream,
 * the call runs beside it: it begins when the stream has done what it was given so far, and what follows in the stream doesn't
 * wait for it unless pclWorkJoin says so. pclStartX is pclInvalidUsage in a group: see pclGroupEndStart.
 *
 * NULL is allowed for a buffer that the call neither reads nor writes on this rank, and for a count of 0.
 */

/* The reduction of all ranks' sendbuff (count elements), in every rank's recvbuff. */
pclResult_t pclAllReduce(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclRedOp_t op,
                         pclComm_t comm, pclStream_t stream);
pclResult_t pclStartAllReduce(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclRedOp_t op,
                              pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* The reduction of all ranks' sendbuff (count elements), in the root's recvbuff. */
pclResult_t pclReduce(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclRedOp_t op, int root,
                      pclComm_t comm, pclStream_t stream);
pclResult_t pclStartReduce(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclRedOp_t op,
                           int root, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* The root's sendbuff (count elements), in every rank's recvbuff. */
pclResult_t pclBroadcast(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root,
                         pclComm_t comm, pclStream_t stream);
pclResult_t pclStartBroadcast(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root,
                              pclComm_t comm, pclStream_t stream, pclWork_t *work);
/* The same in place. */
pclResult_t pclBcast(void *buff, size_t count, pclDataType_t datatype, int root, pclComm_t comm, pclStream_t stream);

/* All ranks' sendbuff (sendcount elements), one behind the other in rank order, in every rank's recvbuff (n * sendcount). */
pclResult_t pclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, pclDataType_t datatype, pclComm_t comm,
                         pclStream_t stream);
pclResult_t pclStartAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, pclDataType_t datatype, pclComm_t comm,
                              pclStream_t stream, pclWork_t *work);
/* recvcounts[r] elements of rank r, at recvdispls[r] of recvbuff; sendbuff has recvcounts[this rank]. Counts are the same on
 * all ranks, displacements each rank's own; without them (NULL) the blocks lie one behind the other. */
pclResult_t pclAllGatherV(const void *sendbuff, void *recvbuff, const size_t *recvcounts, const size_t *recvdispls,
                          pclDataType_t datatype, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartAllGatherV(const void *sendbuff, void *recvbuff, const size_t *recvcounts, const size_t *recvdispls,
                               pclDataType_t datatype, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* The reduction of all ranks' block r (recvcount elements) in rank r's recvbuff; sendbuff has n * recvcount. In place, what
 * the other blocks of sendbuff hold afterwards is undefined: it is used as scratch. */
pclResult_t pclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, pclDataType_t datatype, pclRedOp_t op,
                             pclComm_t comm, pclStream_t stream);
pclResult_t pclStartReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, pclDataType_t datatype,
                                  pclRedOp_t op, pclComm_t comm, pclStream_t stream, pclWork_t *work);
/* Rank r gets sendcounts[r] elements, which lie at senddispls[r] of sendbuff. As pclAllGatherV. */
pclResult_t pclReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *sendcounts, const size_t *senddispls,
                              pclDataType_t datatype, pclRedOp_t op, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *sendcounts, const size_t *senddispls,
                                   pclDataType_t datatype, pclRedOp_t op, pclComm_t comm, pclStream_t stream,
                                   pclWork_t *work);

/* Block r of sendbuff (count elements) to rank r, block r of recvbuff from rank r. */
pclResult_t pclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclComm_t comm,
                        pclStream_t stream);
pclResult_t pclStartAlltoAll(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, pclComm_t comm,
                             pclStream_t stream, pclWork_t *work);
/* sendcounts[r] elements from senddispls[r] on to rank r, recvcounts[r] elements from rank r to recvdispls[r]. What two ranks
 * exchange must agree. Displacements may be NULL: one behind the other. */
pclResult_t pclAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *senddispls, void *recvbuff,
                         const size_t *recvcounts, const size_t *recvdispls, pclDataType_t datatype, pclComm_t comm,
                         pclStream_t stream);
pclResult_t pclStartAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *senddispls, void *recvbuff,
                              const size_t *recvcounts, const size_t *recvdispls, pclDataType_t datatype, pclComm_t comm,
                              pclStream_t stream, pclWork_t *work);

/* All ranks' sendbuff (count elements), one behind the other in rank order, in the root's recvbuff. */
pclResult_t pclGather(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root, pclComm_t comm,
                      pclStream_t stream);
pclResult_t pclStartGather(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root,
                           pclComm_t comm, pclStream_t stream, pclWork_t *work);
/* As pclAllGatherV, at the root. Counts on every rank; displacements are looked at on the root. */
pclResult_t pclGatherV(const void *sendbuff, void *recvbuff, const size_t *recvcounts, const size_t *recvdispls,
                       pclDataType_t datatype, int root, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartGatherV(const void *sendbuff, void *recvbuff, const size_t *recvcounts, const size_t *recvdispls,
                            pclDataType_t datatype, int root, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* Block r of the root's sendbuff (count elements), in rank r's recvbuff. */
pclResult_t pclScatter(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root, pclComm_t comm,
                       pclStream_t stream);
pclResult_t pclStartScatter(const void *sendbuff, void *recvbuff, size_t count, pclDataType_t datatype, int root,
                            pclComm_t comm, pclStream_t stream, pclWork_t *work);
/* Rank r gets sendcounts[r] elements, which lie at senddispls[r] of the root's sendbuff. Counts on every rank. */
pclResult_t pclScatterV(const void *sendbuff, void *recvbuff, const size_t *sendcounts, const size_t *senddispls,
                        pclDataType_t datatype, int root, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartScatterV(const void *sendbuff, void *recvbuff, const size_t *sendcounts, const size_t *senddispls,
                             pclDataType_t datatype, int root, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* Ends when all ranks have called it. With a stream: when all ranks' streams have got there. */
pclResult_t pclBarrier(pclComm_t comm, pclStream_t stream);
pclResult_t pclStartBarrier(pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* A message to, or the next message from, a peer; both sides name the same count. Messages between two ranks arrive in the
 * order sent. A send may end before its message is received. There are no tags, and no receiving from any source. To itself
 * a rank sends by pclSendRecv, or by pclSend and pclRecv in one group. */
pclResult_t pclSend(const void *sendbuff, size_t count, pclDataType_t datatype, int peer, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartSend(const void *sendbuff, size_t count, pclDataType_t datatype, int peer, pclComm_t comm,
                         pclStream_t stream, pclWork_t *work);
pclResult_t pclRecv(void *recvbuff, size_t count, pclDataType_t datatype, int peer, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartRecv(void *recvbuff, size_t count, pclDataType_t datatype, int peer, pclComm_t comm, pclStream_t stream,
                         pclWork_t *work);
/* A message to `to` and, at the same time, one from `from`. The buffers must not overlap. */
pclResult_t pclSendRecv(const void *sendbuff, size_t sendcount, int to, void *recvbuff, size_t recvcount, int from,
                        pclDataType_t datatype, pclComm_t comm, pclStream_t stream);
pclResult_t pclStartSendRecv(const void *sendbuff, size_t sendcount, int to, void *recvbuff, size_t recvcount, int from,
                             pclDataType_t datatype, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* Any of these calls as data, with what a single call may have of its own. Start from PCL_CALL_INITIALIZER; members that the
 * collective has no use for are not looked at. */
typedef struct {
  size_t size;
  unsigned int version;
  pclCollective_t collective;
  const void *sendbuff;
  void *recvbuff;
  /* As the `count` of the function; of pclCollSendRecv, what is sent. */
  size_t count;
  /* What pclCollSendRecv receives. */
  size_t recvcount;
  pclDataType_t datatype;
  pclRedOp_t op;
  /* The root; the peer of a message; of pclCollSendRecv, where to. */
  int root;
  /* Of pclCollSendRecv, where from. */
  int source;
  /* Not NULL: the V variant, which doesn't look at `count`. */
  const size_t *sendcounts;
  const size_t *senddispls;
  const size_t *recvcounts;
  const size_t *recvdispls;
  /* How long the call may take; 0: the communicator's timeout. In a group all calls have the communicator's. */
  uint64_t timeoutMs;
  /* The algorithm's name, the same on all ranks; NULL: the best by price. In a group: NULL. */
  const char *algorithm;
} pclCall_t;

#define PCL_CALL_VERSION 1u
#define PCL_CALL_INITIALIZER                                                                                                \
  { sizeof(pclCall_t), PCL_CALL_VERSION, pclCollBarrier, NULL, NULL, 0, 0, pclUint8, pclSum, 0, 0, NULL, NULL, NULL, NULL, 0, NULL }

pclResult_t pclRun(const pclCall_t *call, pclComm_t comm, pclStream_t stream);
pclResult_t pclStart(const pclCall_t *call, pclComm_t comm, pclStream_t stream, pclWork_t *work);

/* Works */

#define PCL_WAIT_FOREVER UINT64_MAX

/* Whether it has ended, without waiting: sets `*done` to 1 or 0. Where it has ended badly, returns how. */
pclResult_t pclWorkTest(pclWork_t work, int *done);
/* Waits until it has ended, for `timeoutMs` at most: pclInProgress then, and it goes on. (Its own timeout ends it in any case,
 * so that PCL_WAIT_FOREVER is no longer than that.) Otherwise returns how it ended. May be called again, also at once from
 * several threads. */
pclResult_t pclWorkWait(pclWork_t work, uint64_t timeoutMs);
/* Lets what `stream` is given from now on wait for a work that was started with a stream. */
pclResult_t pclWorkJoin(pclWork_t work, pclStream_t stream);
/* Frees the handle. A call that has not ended goes on, and its buffers stay lent: wait for it first, or destroy the
 * communicator before the buffers. */
pclResult_t pclWorkFree(pclWork_t work);

/* Groups */

/* Calls that the thread makes from here to the matching pclGroupEnd, of whichever communicators, are noted and then made
 * together: none waits for another to be made first, so several ranks' calls may come from one thread, and messages can't block
 * each other. Groups may be nested: the outermost counts. Calls in groups check little when they are made: pclGroupEnd says
 * what is wrong. Calls with a stream go into their stream at once, in the order made; but its messages
 * (pclSend, pclRecv) at the end, in an order in which none waits for ever. */
pclResult_t pclGroupStart(void);
/* Makes the calls and blocks until all have ended; the first error, if any. If one can't be meant, none of its communicator's
 * calls has begun. Without pclGroupStart: pclInvalidUsage. */
pclResult_t pclGroupEnd(void);
/* Makes the calls and returns at once with one work for all of them. pclInvalidUsage for an inner group, or if the group makes
 * communicators. */
pclResult_t pclGroupEndStart(pclWork_t *work);

#ifdef __cplusplus
}
#endif

#endif
