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
  // With a device bound to the default group, PyTorch has the ranks that a new group leaves out call this of backends
  // that can split. Here only the others take part.
  pybind11::class_<paceline::Backend, c10::intrusive_ptr<paceline::Backend>, c10d::Backend>(module, "Backend")
      .def("perform_nocolor_split", [](paceline::Backend&, const at::Device&) {});
  module.def("load", &paceline::loadLibrary);
  module.def("create", &create, pybind11::call_guard<pybind11::gil_scoped_release>());
}
