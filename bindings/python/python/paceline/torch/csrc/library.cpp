#include "library.h"

#include <dlfcn.h>

#include <c10/util/Exception.h>

namespace paceline {

namespace {

Library functions;
bool isLoaded = false;
bool isWithCuda = false;

}  // namespace

void loadLibrary(const std::string& path, bool hasCuda) {
  if (isLoaded) {
    return;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, "paceline's library can't be loaded: ", dlerror());
  Library found;
#define PACELINE_LOOK_UP(name)                                            \
  found.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  TORCH_CHECK(found.name != nullptr, path,                                \
              " has no function " #name ": the package paceline is incomplete or another version's");
  PACELINE_FUNCTIONS(PACELINE_LOOK_UP)
#undef PACELINE_LOOK_UP
  int version = 0;
  TORCH_CHECK(found.pclGetVersion(&version) == pclSuccess && version == PCL_VERSION_CODE, path, " is version ", version,
              ", but paceline.torch was built for ", PCL_VERSION_CODE);
  functions = found;
  isWithCuda = hasCuda;
  isLoaded = true;
}

bool hasCuda() {
  return isWithCuda;
}

const Library& library() {
  TORCH_CHECK(isLoaded, "paceline's library is not loaded: import paceline.torch");
  return functions;
}

}  // namespace paceline
