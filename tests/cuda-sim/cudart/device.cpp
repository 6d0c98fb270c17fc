// Devices, contexts and errors: which device a thread is on, and what went wrong there last.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "driver.h"

namespace cudart {

namespace {

thread_local cudaError_t last = cudaSuccess;
thread_local int device = 0;
constexpr int MOST_DEVICES = 64;
CUcontext contexts[MOST_DEVICES];
std::mutex retaining;

CUresult contextOf(int ordinal, CUcontext* context) {
  if (ordinal < 0 || MOST_DEVICES <= ordinal) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  std::lock_guard<std::mutex> lock(retaining);
  if (contexts[ordinal] == nullptr) {
    const auto result = DRIVER(cuDevicePrimaryCtxRetain)(&contexts[ordinal], ordinal);
    if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  *context = contexts[ordinal];
  return CUDA_SUCCESS;
}

CUresult initialise() {
  static const CUresult result = DRIVER(cuInit)(0);
  return result;
}

}  // namespace

void* find(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return library == nullptr ? nullptr : dlsym(library, name);
}

void* symbol(const char* name) {
  void* found = find(name);
  if (found == nullptr) {
    fprintf(stderr, "paceline-cudart[%d]: libcuda.so.1 has no %s\n", getpid(), name);
    abort();
  }
  return found;
}

cudaError_t told(CUresult result) {
  return told(static_cast<cudaError_t>(result));
}

cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    last = error;
  }
  return error;
}

cudaError_t missing(const char* name) {
  fprintf(stderr, "paceline-cudart[%d]: %s is not simulated\n", getpid(), name);
  return told(cudaErrorNotSupported);
}

int refused(const char* name) {
  return missing(name);
}

cudaError_t enter() {
  auto result = initialise();
  CUcontext current = nullptr, wanted = nullptr;
  if (result == CUDA_SUCCESS) {
    result = contextOf(device, &wanted);
  }
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuCtxGetCurrent)(&current);
  }
  if (result == CUDA_SUCCESS && current != wanted) {
    result = DRIVER(cuCtxSetCurrent)(wanted);
  }
  return result == CUDA_SUCCESS ? cudaSuccess : told(result);
}

}  // namespace cudart

using namespace cudart;

extern "C" {

cudaError_t cudaGetLastError() {
  const auto error = last;
  last = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return last;
}

const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  DRIVER(cuGetErrorName)(static_cast<CUresult>(error), &text);
  return text == nullptr ? "unrecognized error code" : text;
}

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  DRIVER(cuGetErrorString)(static_cast<CUresult>(error), &text);
  return text == nullptr ? "unrecognized error code" : text;
}

cudaError_t cudaDriverGetVersion(int* version) {
  // As new as the runtime, so that nobody says that it is too old.
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  const auto result = find("cuInit") == nullptr ? CUDA_ERROR_NO_DEVICE : initialise();
  return told(result == CUDA_SUCCESS ? DRIVER(cuDeviceGetCount)(count) : result);
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || ordinal < 0 || count <= ordinal) {
    return error == cudaSuccess ? told(cudaErrorInvalidDevice) : error;
  }
  device = ordinal;
  return enter();
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  ENTER();
  // Both have the same numbers.
  return told(DRIVER(cuDeviceGetAttribute)(value, static_cast<CUdevice_attribute>(attribute), ordinal));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  ENTER();
  memset(properties, 0, sizeof(*properties));
  const auto attribute = [ordinal](CUdevice_attribute which, int otherwise) {
    int value = 0;
    return DRIVER(cuDeviceGetAttribute)(&value, which, ordinal) == CUDA_SUCCESS ? value : otherwise;
  };
  auto result = DRIVER(cuDeviceGetName)(properties->name, sizeof(properties->name), ordinal);
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuDeviceTotalMem)(&properties->totalGlobalMem, ordinal);
  }
  CUuuid uuid{};
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuDeviceGetUuid)(&uuid, ordinal);
  }
  memcpy(&properties->uuid, &uuid, sizeof(uuid));
  properties->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9);
  properties->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  properties->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1);
  properties->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32);
  properties->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
  properties->maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048);
  properties->regsPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536);
  properties->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152);
  properties->asyncEngineCount = attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1);
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  properties->concurrentKernels = 1;
  properties->streamPrioritiesSupported = 1;
  return told(result);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int ordinal) {
  FORWARD(cuDeviceGetPCIBusId, text, room, ordinal);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FORWARD(cuCtxGetStreamPriorityRange, least, greatest);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  FORWARD(cuDeviceCanAccessPeer, can, ordinal, peer);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  ENTER();
  CUcontext context = nullptr;
  const auto result = contextOf(peer, &context);
  return told(result == CUDA_SUCCESS ? DRIVER(cuCtxEnablePeerAccess)(context, flags) : result);
}

cudaError_t cudaDeviceSynchronize() {
  FORWARD(cuCtxSynchronize);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  char later[256];
  *function = nullptr;
  for (const char* version : {"_v3", "_v2", ""}) {
    snprintf(later, sizeof(later), "%s%s", name, version);
    if (*function == nullptr) {
      *function = find(later);
    }
  }
  if (status != nullptr) {
    *status = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

}  // extern "C"
