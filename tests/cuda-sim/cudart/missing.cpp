// What PyTorch's libraries name and tests don't need: it is there, so that they load, and says that it isn't.
//
// Without the headers' declarations, because nobody looks at arguments. Results are CUDA's numbers.
namespace cudart {
int refused(const char* name);
}

#define MISSING(name)              \
  extern "C" int name() {          \
    return cudart::refused(#name); \
  }

MISSING(cudaDeviceGetDefaultMemPool)
MISSING(cudaDeviceGetGraphMemAttribute)
MISSING(cudaDeviceSetGraphMemAttribute)
MISSING(cudaFuncGetAttributes)
MISSING(cudaFuncSetAttribute)
MISSING(cudaGetSymbolAddress)
MISSING(cudaGraphAddNode)
MISSING(cudaGraphConditionalHandleCreate)
MISSING(cudaGraphDestroy)
MISSING(cudaGraphExecDestroy)
MISSING(cudaGraphGetNodes)
MISSING(cudaGraphInstantiate)
MISSING(cudaGraphInstantiateWithFlags)
MISSING(cudaGraphLaunch)
MISSING(cudaGraphNodeGetDependencies)
MISSING(cudaGraphRetainUserObject)
MISSING(cudaIpcOpenEventHandle)
MISSING(cudaKernelSetAttributeForDevice)
MISSING(cudaLaunchCooperativeKernel)
MISSING(cudaLaunchKernelExC)
MISSING(cudaLibraryGetGlobal)
MISSING(cudaLibraryGetKernel)
MISSING(cudaLibraryGetKernelCount)
MISSING(cudaLibraryGetManaged)
MISSING(cudaLibraryGetUnifiedFunction)
MISSING(cudaLibraryLoadData)
MISSING(cudaLibraryLoadFromFile)
MISSING(cudaLibraryUnload)
MISSING(cudaMallocManaged)
MISSING(cudaMemPoolGetAttribute)
MISSING(cudaMemPoolSetAccess)
MISSING(cudaMemPoolSetAttribute)
MISSING(cudaMemPoolTrimTo)
MISSING(cudaMemcpy2DAsync)
MISSING(cudaMemcpyToSymbol)
MISSING(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
MISSING(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
MISSING(cudaProfilerStart)
MISSING(cudaProfilerStop)
MISSING(cudaStreamAddCallback)
MISSING(cudaStreamBeginCapture)
MISSING(cudaStreamBeginCaptureToGraph)
MISSING(cudaStreamEndCapture)
MISSING(cudaStreamUpdateCaptureDependencies)
MISSING(cudaUserObjectCreate)
MISSING(cudaUserObjectRelease)
MISSING(cuLaunchCooperativeKernel)
MISSING(cuLinkAddData_v2)
MISSING(cuLinkComplete)
MISSING(cuLinkCreate_v2)
MISSING(cuModuleLoad)
MISSING(cuTensorMapEncodeTiled)
