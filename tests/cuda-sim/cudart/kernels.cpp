// Kernels that are linked into programs: registered for nothing, because nothing here can run what is in them.
#include <unistd.h>

#include <cstdio>

#include "driver.h"

using namespace cudart;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* nothing = nullptr;
  return &nothing;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}

void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*) {
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
  return missing("launching a kernel that is linked into a program");
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return missing("launching a kernel that is linked into a program");
}

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return missing("launching a kernel that is linked into a program");
}

}  // extern "C"
