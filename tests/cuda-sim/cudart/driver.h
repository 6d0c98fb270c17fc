// The driver's functions, looked up in libcuda.so.1, and its results as the runtime's.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace cudart {

// Aborts where the driver has no such function: the software driver has all that is asked of it here.
void* symbol(const char* name);
// The same, or nullptr.
void* find(const char* name);

// Both have numbers in common; remembered as the thread's last error.
cudaError_t told(CUresult result);
cudaError_t told(cudaError_t error);

// Sees to it that the thread has a current context: that of its device.
cudaError_t enter();

// Says on standard error that `name` isn't there, and returns cudaErrorNotSupported.
cudaError_t missing(const char* name);
int refused(const char* name);

}  // namespace cudart

// Past the header's macros that say which version of a function is meant.
#define DRIVER_(name) (reinterpret_cast<decltype(&::name)>(cudart::symbol(#name)))
#define DRIVER(name) DRIVER_(name)
#define ENTER()                                          \
  do {                                                   \
    const auto entered = cudart::enter();                \
    if (entered != cudaSuccess) return entered;          \
  } while (0)
// Calls the driver in the context of the thread's device.
#define FORWARD(name, ...)                               \
  do {                                                   \
    ENTER();                                             \
    return cudart::told(DRIVER(name)(__VA_ARGS__));      \
  } while (0)
