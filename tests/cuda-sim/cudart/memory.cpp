// Memory: allocated, copied, filled, shared.
#include <cstring>

#include "driver.h"

using namespace cudart;

static CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  FORWARD(cuMemAlloc, reinterpret_cast<CUdeviceptr*>(pointer), bytes);
}

cudaError_t cudaFree(void* pointer) {
  FORWARD(cuMemFree, address(pointer));
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  FORWARD(cuMemAllocAsync, reinterpret_cast<CUdeviceptr*>(pointer), bytes, stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  FORWARD(cuMemFreeAsync, address(pointer), stream);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  FORWARD(cuMemHostAlloc, pointer, bytes, flags);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  FORWARD(cuMemHostAlloc, pointer, bytes, 0);
}

cudaError_t cudaFreeHost(void* pointer) {
  FORWARD(cuMemFreeHost, pointer);
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  FORWARD(cuMemHostRegister, pointer, bytes, flags);
}

cudaError_t cudaHostUnregister(void* pointer) {
  FORWARD(cuMemHostUnregister, pointer);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FORWARD(cuMemGetInfo, free, total);
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  FORWARD(cuMemcpy, address(target), address(source), bytes);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      FORWARD(cuMemcpyHtoDAsync, address(target), source, bytes, stream);
    case cudaMemcpyDeviceToHost:
      FORWARD(cuMemcpyDtoHAsync, target, address(source), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      FORWARD(cuMemcpyDtoDAsync, address(target), address(source), bytes, stream);
    default:
      FORWARD(cuMemcpyAsync, address(target), address(source), bytes, stream);
  }
}

cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t bytes, cudaStream_t stream) {
  FORWARD(cuMemcpyDtoDAsync, address(target), address(source), bytes, stream);
}

cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  FORWARD(cuMemsetD8, address(target), static_cast<unsigned char>(value), bytes);
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  FORWARD(cuMemsetD8Async, address(target), static_cast<unsigned char>(value), bytes, stream);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  ENTER();
  memset(attributes, 0, sizeof(*attributes));
  unsigned int type = 0;
  int ordinal = -2;
  const auto get = DRIVER(cuPointerGetAttribute);
  if (get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pointer)) != CUDA_SUCCESS) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = ordinal;
    return cudaSuccess;
  }
  get(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address(pointer));
  attributes->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = ordinal;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = type == CU_MEMORYTYPE_HOST ? const_cast<void*>(pointer) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  FORWARD(cuIpcGetMemHandle, reinterpret_cast<CUipcMemHandle*>(handle), address(pointer));
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  CUipcMemHandle given;
  static_assert(sizeof(given) == sizeof(handle));
  memcpy(&given, &handle, sizeof(given));
  FORWARD(cuIpcOpenMemHandle, reinterpret_cast<CUdeviceptr*>(pointer), given, flags);
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  FORWARD(cuIpcCloseMemHandle, address(pointer));
}

}  // extern "C"
