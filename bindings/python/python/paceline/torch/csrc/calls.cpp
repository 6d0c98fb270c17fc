#include "calls.h"

namespace paceline {

c10::Device deviceOf(const Calls& calls) {
  std::optional<c10::Device> device;
  for (const auto* tensors : {&calls.kept, &calls.outputs}) {
    for (const auto& tensor : *tensors) {
      if (!device) {
        device = tensor.device();
      }
      TORCH_CHECK(tensor.device() == *device, calls.name(),
                  ": all tensors of a call must be on one device, but are on ", *device, " and ", tensor.device());
    }
  }
  return device.value_or(c10::Device(c10::kCPU));
}

Operators::Operators(Calls& calls, const Communicator& communicator) : communicator_(communicator) {
  for (const auto& [which, factor] : calls.factors) {
    auto& call = calls.calls.at(which);
    const auto result = library().pclRedOpCreatePreMulSum(&call.op, factor.data_ptr(), call.datatype,
                                                          pclScalarHostImmediate, communicator.handle());
    communicator.check(result, "ReduceOp.PREMUL_SUM");
    made_.push_back(call.op);
  }
}

Operators::~Operators() {
  for (const auto op : made_) {
    library().pclRedOpDestroy(op, communicator_.handle());
  }
}

}  // namespace paceline
