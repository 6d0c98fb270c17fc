// Tensors as the library sees them: element types, operators, and memory that lies one element behind the other.
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "library.h"

namespace paceline {

// How elements are moved: as their own type where the library has it, else as bytes.
struct Moved {
  pclDataType_t type;
  // Units of `type` in one element.
  size_t units;
};
Moved moved(at::ScalarType type);

// How elements are reduced by the library itself; nothing where it can't.
struct Reduced {
  pclDataType_t type;
  size_t units;
  pclRedOp_t op;
};
std::optional<Reduced> reduced(at::ScalarType type, const c10d::ReduceOp& op);

// The reduction of `all`'s rows, in rank order, by PyTorch's own kernels: what `reduced` has nothing for.
at::Tensor fold(const at::Tensor& all, const c10d::ReduceOp& op);
// Throws where neither can.
void checkFold(at::ScalarType type, const c10d::ReduceOp& op);

// Throws unless it is a dense tensor in memory that calls can be over.
void checkDense(const at::Tensor& tensor, const char* call);
// Throws where the library has no calls for the device.
void checkDevice(const at::Device& device, const char* call);
void checkSameType(const at::Tensor& one, const at::Tensor& other, const char* call);
// The tensor that a call has exactly one of.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call);

// One vector with the elements of all.
at::Tensor joined(const std::vector<at::Tensor>& tensors);
// Puts the parts of a vector back.
void splitInto(const at::Tensor& vector, const std::vector<at::Tensor>& tensors);
// Whether all lie one behind the other in one block of memory, in order.
bool areAdjacent(const std::vector<at::Tensor>& tensors);
// The first of such a block's tensors that has elements, or the first.
const at::Tensor& startOf(const std::vector<at::Tensor>& tensors);
size_t countOf(const std::vector<at::Tensor>& tensors);

}  // namespace paceline
