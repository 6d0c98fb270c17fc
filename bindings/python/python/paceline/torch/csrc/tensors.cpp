#include "tensors.h"

namespace paceline {

namespace {

using RedOp = c10d::ReduceOp;

std::optional<pclDataType_t> ownType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return pclFloat32;
    case at::kDouble:
      return pclFloat64;
    case at::kHalf:
      return pclFloat16;
    case at::kBFloat16:
      return pclBfloat16;
    case at::kChar:
      return pclInt8;
    case at::kByte:
    case at::kBool:
      return pclUint8;
    case at::kInt:
      return pclInt32;
    case at::kUInt32:
      return pclUint32;
    case at::kLong:
      return pclInt64;
    case at::kUInt64:
      return pclUint64;
    case at::ScalarType::Float8_e4m3fn:
      return pclFloat8e4m3;
    case at::ScalarType::Float8_e5m2:
      return pclFloat8e5m2;
    default:
      return std::nullopt;
  }
}

std::optional<pclRedOp_t> ownOperator(const RedOp& op) {
  switch (op) {
    case RedOp::SUM:
    // Its operator is made for the call.
    case RedOp::PREMUL_SUM:
      return pclSum;
    case RedOp::AVG:
      return pclAvg;
    case RedOp::PRODUCT:
      return pclProd;
    case RedOp::MIN:
      return pclMin;
    case RedOp::MAX:
      return pclMax;
    default:
      return std::nullopt;
  }
}

// Bytes that are 0 or 1: "or" is the maximum, "and" is the minimum.
std::optional<pclRedOp_t> ownLogic(const RedOp& op) {
  switch (op) {
    case RedOp::SUM:
    case RedOp::MAX:
    case RedOp::BOR:
      return pclMax;
    case RedOp::PRODUCT:
    case RedOp::MIN:
    case RedOp::BAND:
      return pclMin;
    default:
      return std::nullopt;
  }
}

const char* nameOf(const RedOp& op) {
  static const char* const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
  return names[static_cast<int>(static_cast<RedOp::RedOpType>(op))];
}

}  // namespace

Moved moved(at::ScalarType type) {
  if (const auto own = ownType(type)) {
    return {*own, 1};
  }
  if (type == at::kComplexFloat) {
    return {pclFloat32, 2};
  }
  if (type == at::kComplexDouble) {
    return {pclFloat64, 2};
  }
  return {pclUint8, c10::elementSize(type)};
}

std::optional<Reduced> reduced(at::ScalarType type, const RedOp& op) {
  if (type == at::kBool) {
    const auto logic = ownLogic(op);
    return logic ? std::optional<Reduced>({pclUint8, 1, *logic}) : std::nullopt;
  }
  const auto own = ownOperator(op);
  if (!own) {
    return std::nullopt;
  }
  if (c10::isComplexType(type)) {
    if ((type != at::kComplexFloat && type != at::kComplexDouble) || !c10d::isComplexViewAsRealAllowed(op)) {
      return std::nullopt;
    }
    return Reduced{type == at::kComplexFloat ? pclFloat32 : pclFloat64, 2, *own};
  }
  const auto known = ownType(type);
  return known ? std::optional<Reduced>({*known, 1, *own}) : std::nullopt;
}

void checkFold(at::ScalarType type, const RedOp& op) {
  const bool isBits = op == RedOp::BAND || op == RedOp::BOR || op == RedOp::BXOR;
  const bool isWhole = c10::isIntegralType(type, true);
  const bool isOrder = op == RedOp::MIN || op == RedOp::MAX;
  TORCH_CHECK(!isBits || isWhole, "Cannot use ReduceOp.", nameOf(op), " with non-integral dtype ", type);
  TORCH_CHECK(!c10::isComplexType(type) || op == RedOp::PRODUCT, "ReduceOp.", nameOf(op),
              " is not defined for complex ", type);
  TORCH_CHECK(isBits || isOrder || (op != RedOp::PREMUL_SUM && !(op == RedOp::AVG && type == at::kBool)), "ReduceOp.",
              nameOf(op), " of ", type, " is not supported by the paceline backend");
}

at::Tensor fold(const at::Tensor& all, const RedOp& op) {
  auto total = all[0].clone();
  for (int64_t rank = 1; rank < all.size(0); ++rank) {
    const auto next = all[rank];
    switch (op) {
      case RedOp::SUM:
      case RedOp::AVG:
        total.add_(next);
        break;
      case RedOp::PRODUCT:
        total.mul_(next);
        break;
      case RedOp::MIN:
        total = at::minimum(total, next);
        break;
      case RedOp::MAX:
        total = at::maximum(total, next);
        break;
      case RedOp::BAND:
        total.bitwise_and_(next);
        break;
      case RedOp::BOR:
        total.bitwise_or_(next);
        break;
      case RedOp::BXOR:
        total.bitwise_xor_(next);
        break;
      default:
        TORCH_CHECK(false, "ReduceOp.", nameOf(op), " is not supported by the paceline backend");
    }
  }
  if (op == RedOp::AVG) {
    total = c10::isIntegralType(total.scalar_type(), false) ? at::div(total, all.size(0), "trunc")
                                                            : total.div_(all.size(0));
  }
  return total;
}

void checkDevice(const at::Device& device, const char* call) {
  TORCH_CHECK(device.is_cpu() || device.is_cuda(), call,
              ": the paceline backend takes tensors in memory of the host or of CUDA devices, not on ", device);
  TORCH_CHECK(device.is_cpu() || hasCuda(), call, ": ", device,
              " is asked for, but the package paceline that is installed was built without CUDA: build it with its "
              "feature cuda (docs/torch.md says how)");
}

void checkDense(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.layout() == at::kStrided, call, ": only dense tensors are supported here, not ", tensor.layout());
  checkDevice(tensor.device(), call);
}

void checkSameType(const at::Tensor& one, const at::Tensor& other, const char* call) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), call, ": tensors must have identical dtype, but are ",
              one.scalar_type(), " and ", other.scalar_type(), " (invalid tensor type)");
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK(tensors.size() == 1, call, ": requires a single-element tensor list, not ", tensors.size(), " tensors");
  return tensors[0];
}

at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    flat.push_back(tensor.reshape({-1}));
  }
  return at::cat(flat);
}

void splitInto(const at::Tensor& vector, const std::vector<at::Tensor>& tensors) {
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    tensor.copy_(vector.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

bool areAdjacent(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const auto& tensor : tensors) {
    if (!tensor.is_contiguous()) {
      return false;
    }
    if (tensor.numel() == 0) {
      continue;
    }
    const auto* start = static_cast<const char*>(tensor.const_data_ptr());
    if (next != nullptr && start != next) {
      return false;
    }
    next = start + tensor.nbytes();
  }
  return true;
}

const at::Tensor& startOf(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) {
      return tensor;
    }
  }
  return tensors[0];
}

size_t countOf(const std::vector<at::Tensor>& tensors) {
  size_t count = 0;
  for (const auto& tensor : tensors) {
    count += static_cast<size_t>(tensor.numel());
  }
  return count;
}

}  // namespace paceline
