// The functions of paceline.h that are used here, looked up in the library that the package paceline has loaded.
//
// Nothing is linked against it: the extension is compiled on the user's machine, the library may lie anywhere, and a
// name that is missing is an error that says so rather than one of the loader's.
#pragma once

#include <string>

#include "paceline.h"

namespace paceline {

#define PACELINE_FUNCTIONS(X) \
  X(pclGetVersion)            \
  X(pclGetErrorString)        \
  X(pclGetLastError)          \
  X(pclGetLastErrorPeers)     \
  X(pclGetUniqueId)           \
  X(pclCommInitRankConfig)    \
  X(pclCommDestroy)           \
  X(pclCommRevoke)            \
  X(pclCommGetAsyncError)     \
  X(pclCommSetTimeout)        \
  X(pclRedOpCreatePreMulSum)  \
  X(pclRedOpDestroy)          \
  X(pclRun)                   \
  X(pclStart)                 \
  X(pclWorkTest)              \
  X(pclWorkWait)              \
  X(pclWorkFree)              \
  X(pclGroupStart)            \
  X(pclGroupEnd)              \
  X(pclGroupEndStart)

struct Library {
#define PACELINE_MEMBER(name) decltype(&::name) name = nullptr;
  PACELINE_FUNCTIONS(PACELINE_MEMBER)
#undef PACELINE_MEMBER
};

// Looks the functions up in the library at `path`, which was built with CUDA or without. Throws if one is missing or
// the version is another than the header's.
void loadLibrary(const std::string& path, bool hasCuda);

// Whether the library was built for memory of CUDA devices.
bool hasCuda();

// Throws before `loadLibrary`.
const Library& library();

}  // namespace paceline
