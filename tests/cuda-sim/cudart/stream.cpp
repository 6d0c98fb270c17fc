// Streams, events and captures.
#include "driver.h"

using namespace cudart;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  FORWARD(cuStreamCreate, stream, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  FORWARD(cuStreamCreate, stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  FORWARD(cuStreamCreateWithPriority, stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  FORWARD(cuStreamDestroy, stream);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  FORWARD(cuStreamGetPriority, stream, priority);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FORWARD(cuStreamSynchronize, stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FORWARD(cuStreamQuery, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  FORWARD(cuStreamWaitEvent, stream, event, flags);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  FORWARD(cuLaunchHostFunc, stream, function, data);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  FORWARD(cuEventCreate, event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  FORWARD(cuEventCreate, event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FORWARD(cuEventDestroy, event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FORWARD(cuEventRecord, event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  FORWARD(cuEventRecordWithFlags, event, stream, flags);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FORWARD(cuEventQuery, event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FORWARD(cuEventSynchronize, event);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  ENTER();
  return told(reinterpret_cast<CUresult (*)(float*, CUevent, CUevent)>(symbol("cuEventElapsedTime"))(ms, start, end));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  FORWARD(cuIpcGetEventHandle, reinterpret_cast<CUipcEventHandle*>(handle), event);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  FORWARD(cuStreamIsCapturing, stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  FORWARD(cuThreadExchangeStreamCaptureMode, reinterpret_cast<CUstreamCaptureMode*>(mode));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  // Of graphs only that there is one is known here.
  ENTER();
  const auto error = cudaStreamIsCapturing(stream, status);
  if (id != nullptr) {
    *id = *status == cudaStreamCaptureStatusNone ? 0 : 1;
  }
  return error;
}

}  // extern "C"
