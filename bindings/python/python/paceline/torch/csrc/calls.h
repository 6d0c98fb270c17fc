// Calls of the library that are one work of c10d, with what they need until they have ended.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "communicator.h"

namespace paceline {

using Tensors = std::vector<at::Tensor>;

struct Calls {
  c10d::OpType type;
  // Of the work, for profilers: "paceline:all_reduce".
  const char* title;
  std::vector<pclCall_t> calls;
  // What the calls read and write.
  Tensors kept;
  Tensors outputs;
  // Brings the outcome to where it belongs.
  std::function<void()> after;
  // Of calls that add up multiples: which call, and its factor, an element in memory of the host.
  std::vector<std::pair<size_t, at::Tensor>> factors;

  // Without the word "paceline:".
  const char* name() const {
    return title + 9;
  }
};

// The device of all tensors, of which there may be none: the host then. Throws where there are several.
c10::Device deviceOf(const Calls& calls);

// Operators that were made for calls, for as long as it takes to make these.
class Operators {
 public:
  Operators(Calls& calls, const Communicator& communicator);
  ~Operators();
  Operators(const Operators&) = delete;
  Operators& operator=(const Operators&) = delete;

 private:
  const Communicator& communicator_;
  std::vector<pclRedOp_t> made_;
};

}  // namespace paceline
