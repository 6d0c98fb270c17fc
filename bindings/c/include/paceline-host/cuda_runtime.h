/*
 * cuda_runtime.h: what programs for NCCL mostly use of CUDA's runtime, over memory of the host. Everything is done when a
 * function returns, so that streams and events have nothing to do. There are as many devices as anyone names. No kernels.
 */
#ifndef PACELINE_HOST_CUDA_RUNTIME_H_
#define PACELINE_HOST_CUDA_RUNTIME_H_

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef struct pacelineHostStream *cudaStream_t;
typedef struct pacelineHostEvent *cudaEvent_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDisableTiming 0x02

#ifdef __cplusplus
#define PACELINE_HOST_THREAD thread_local
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define PACELINE_HOST_THREAD _Thread_local
#else
#define PACELINE_HOST_THREAD __thread
#endif
static inline int *pacelineHostDevice(void) {
  static PACELINE_HOST_THREAD int device;
  return &device;
}

static inline const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    default: return "invalid argument";
  }
}
static inline cudaError_t cudaGetLastError(void) { return cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device) {
  *pacelineHostDevice() = device;
  return device < 0 ? cudaErrorInvalidValue : cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *device) {
  *device = *pacelineHostDevice();
  return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceCount(int *count) {
  *count = 8;
  return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

static inline cudaError_t pacelineHostMalloc(void **pointer, size_t size) {
  *pointer = malloc(size == 0 ? 1 : size);
  return *pointer == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
}
static inline cudaError_t cudaFree(void *pointer) {
  free(pointer);
  return cudaSuccess;
}
static inline cudaError_t cudaFreeHost(void *pointer) { return cudaFree(pointer); }
static inline cudaError_t cudaMemset(void *pointer, int value, size_t size) {
  memset(pointer, value, size);
  return cudaSuccess;
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  (void)kind;
  memmove(to, from, size);
  return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *pointer, int value, size_t size, cudaStream_t stream) {
  (void)stream;
  return cudaMemset(pointer, value, size);
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                          cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, size, kind);
}

/* A stream is an address of its own, so that programs can tell two apart. */
static inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return pacelineHostMalloc((void **)stream, 1); }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  (void)flags;
  return cudaStreamCreate(stream);
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaFree((void *)stream); }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}
static inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
static inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return pacelineHostMalloc((void **)event, 1); }
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  (void)flags;
  return cudaEventCreate(event);
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaFree((void *)event); }
static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  (void)event;
  (void)stream;
  return cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  (void)event;
  return cudaSuccess;
}
static inline cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)stream;
  (void)event;
  (void)flags;
  return cudaSuccess;
}

#ifdef __cplusplus
}

template <class T>
static inline cudaError_t cudaMalloc(T **pointer, size_t size) {
  return pacelineHostMalloc(reinterpret_cast<void **>(pointer), size);
}
template <class T>
static inline cudaError_t cudaMallocHost(T **pointer, size_t size) {
  return pacelineHostMalloc(reinterpret_cast<void **>(pointer), size);
}
#else
#define cudaMalloc(pointer, size) pacelineHostMalloc((void **)(pointer), (size))
#define cudaMallocHost(pointer, size) pacelineHostMalloc((void **)(pointer), (size))
#endif

#endif
