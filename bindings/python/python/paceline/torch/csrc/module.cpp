// What Python sees of the backend: how to make one.
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         double timeoutSeconds, const std::string& name,
                                         const std::vector<int64_t>& globalRanks) {
  paceline::Membership membership;
  membership.store = store;
  membership.rank = rank;
  membership.size = size;
  membership.timeout = paceline::Milliseconds(static_cast<int64_t>(timeoutSeconds * 1000));
  membership.name = name;
  membership.globalRanks = globalRanks;
  return c10::make_intrusive<paceline::Backend>(std::move(membership));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("load", &paceline::loadLibrary);
  module.def("create", &create, pybind11::call_guard<pybind11::gil_scoped_release>());
}
