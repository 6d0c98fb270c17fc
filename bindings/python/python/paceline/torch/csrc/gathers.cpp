// Collectives that move elements as they are.
#include "backend.h"

namespace paceline {

namespace {

std::vector<size_t> countsOf(const Tensors& tensors) {
  std::vector<size_t> counts;
  for (const auto& tensor : tensors) {
    counts.push_back(static_cast<size_t>(tensor.numel()));
  }
  return counts;
}

std::vector<size_t> scaled(std::vector<size_t> counts, size_t units) {
  for (auto& count : counts) {
    count *= units;
  }
  return counts;
}

bool areEqual(const std::vector<size_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](size_t count) { return count == counts[0]; });
}

void keep(Calls& calls, const Tensors& tensors) {
  calls.kept.insert(calls.kept.end(), tensors.begin(), tensors.end());
}

// How many rows go where: what all_to_all_single is given, or equal parts.
std::vector<size_t> splitsOf(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                             const char* which) {
  const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<size_t> counts(size);
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "all_to_all_single: ", which,
                " tensor's dim 0 does not divide equally across group size ", size, ": ", rows);
    std::fill(counts.begin(), counts.end(), static_cast<size_t>(rows / size * row));
    return counts;
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(size),
              "all_to_all_single: Number of tensor splits not equal to group size: ", splits.size(), " for ", size);
  int64_t sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    TORCH_CHECK(splits[rank] >= 0, "all_to_all_single: a split is negative");
    sum += splits[rank];
    counts[rank] = static_cast<size_t>(splits[rank] * row);
  }
  TORCH_CHECK(sum == rows, "all_to_all_single: Split sizes doesn't match total dim 0 size: ", which, " splits give ",
              sum, " of ", rows);
  return counts;
}

}  // namespace

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  auto& tensor = only(tensors, "broadcast");
  checkDense(tensor, "broadcast");
  checkRoot(opts.rootRank, "broadcast");
  Calls calls{c10d::OpType::BROADCAST, "paceline:broadcast"};
  calls.outputs = tensors;
  auto flat = tensor.contiguous();
  auto made = moving(pclCollBroadcast, tensor.scalar_type(), tensor.numel());
  made.root = static_cast<int>(opts.rootRank);
  made.sendbuff = made.recvbuff = flat.data_ptr();
  calls.calls = {made};
  calls.kept = {flat, tensor};
  if (!flat.is_same(tensor) && rank_ != made.root) {
    calls.after = [flat, tensor] { tensor.copy_(flat); };
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

void Backend::addAllGather(Calls& calls, const at::Tensor& output, const at::Tensor& input) {
  checkDense(output, "all_gather_into_tensor");
  checkDense(input, "all_gather_into_tensor");
  checkSameType(output, input, "all_gather_into_tensor");
  TORCH_CHECK(
      output.numel() == input.numel() * size_,
      "all_gather_into_tensor: output tensor size must be equal to world_size times input tensor size, but has ",
      output.numel(), " elements for ", size_, " times ", input.numel());
  auto from = input.contiguous();
  auto into = output.contiguous();
  auto made = moving(pclCollAllGather, input.scalar_type(), input.numel());
  made.sendbuff = from.const_data_ptr();
  made.recvbuff = into.data_ptr();
  calls.calls.push_back(made);
  keep(calls, {from, into, output});
  if (!into.is_same(output)) {
    calls.after = [before = calls.after, into, output] {
      if (before) {
        before();
      }
      output.copy_(into);
    };
  }
}

WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  Calls calls{c10d::OpType::_ALLGATHER_BASE, "paceline:_all_gather_base"};
  calls.outputs = {output};
  addAllGather(calls, output, input);
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "all_gather_into_tensor_coalesced: ", outputs.size(), " outputs for ",
              inputs.size(), " inputs");
  Calls calls{c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, "paceline:all_gather_into_tensor_coalesced"};
  calls.outputs = outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    addAllGather(calls, outputs[i], inputs[i]);
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

void Backend::addAllGatherLists(Calls& calls, std::vector<std::function<void()>>& copies, const Tensors& outputs,
                                const at::Tensor& input) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "all_gather: invalid output tensor list size ",
              outputs.size(), ", must be world size ", size_);
  checkDense(input, "all_gather");
  for (const auto& output : outputs) {
    checkDense(output, "all_gather");
    checkSameType(output, input, "all_gather");
  }
  const auto counts = countsOf(outputs);
  TORCH_CHECK(counts[rank_] == static_cast<size_t>(input.numel()), "all_gather: the input has ", input.numel(),
              " elements, but this rank's output ", counts[rank_], " (invalid tensor size)");
  auto from = input.contiguous();
  const bool isInPlace = areAdjacent(outputs);
  auto into = isInPlace ? startOf(outputs) : at::empty({static_cast<int64_t>(countOf(outputs))}, input.options());
  auto made = moving(pclCollAllGather, input.scalar_type(), input.numel());
  made.sendbuff = from.const_data_ptr();
  made.recvbuff = into.data_ptr();
  calls.calls.push_back(made);
  keep(calls, outputs);
  keep(calls, {from, into});
  if (!isInPlace) {
    copies.push_back([into, outputs] { splitInto(into, outputs); });
  }
}

WorkPtr Backend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  auto& input = only(inputs, "all_gather");
  TORCH_CHECK(outputs.size() == 1, "all_gather: requires a single-element output list");
  Calls calls{c10d::OpType::ALLGATHER, "paceline:all_gather"};
  calls.outputs = outputs[0];
  std::vector<std::function<void()>> copies;
  const auto counts = countsOf(outputs[0]);
  std::vector<size_t> units;
  addAllGatherLists(calls, copies, outputs[0], input);
  if (!areEqual(counts)) {
    units = scaled(counts, moved(input.scalar_type()).units);
    calls.calls[0].recvcounts = units.data();
  }
  if (!copies.empty()) {
    calls.after = copies[0];
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  // Of each rank, a tensor for each of the inputs.
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_),
              "all_gather_coalesced: output lists should be equal to world size");
  TORCH_CHECK(!inputs.empty(), "all_gather_coalesced: requires non-empty input tensor list");
  Calls calls{c10d::OpType::ALLGATHER_COALESCED, "paceline:all_gather"};
  std::vector<std::function<void()>> copies;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors row;
    for (auto& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "all_gather_coalesced: invalid output size: (expected length ",
                  inputs.size(), ", got ", list.size(), ")");
      TORCH_CHECK(list[i].sizes() == inputs[i].sizes(), "all_gather_coalesced: invalid size of output tensor at index ",
                  i, ", which has ", list[i].sizes(), " for ", inputs[i].sizes());
      row.push_back(list[i]);
    }
    addAllGatherLists(calls, copies, row, inputs[i]);
  }
  for (const auto& list : outputs) {
    calls.outputs.insert(calls.outputs.end(), list.begin(), list.end());
  }
  calls.after = [copies] {
    for (const auto& copy : copies) {
      copy();
    }
  };
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  auto& input = only(inputs, "gather");
  checkDense(input, "gather");
  checkRoot(opts.rootRank, "gather");
  Calls calls{c10d::OpType::GATHER, "paceline:gather"};
  auto from = input.contiguous();
  auto made = moving(pclCollGather, input.scalar_type(), input.numel());
  made.root = static_cast<int>(opts.rootRank);
  made.sendbuff = from.const_data_ptr();
  keep(calls, {from});
  if (rank_ == made.root) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
                "gather: Incorrect output list size. Output list size should be ", size_,
                ", same as size of the process group.");
    for (const auto& output : outputs[0]) {
      checkDense(output, "gather");
      checkSameType(output, input, "gather");
      TORCH_CHECK(output.numel() == input.numel(), "gather: an output has ", output.numel(),
                  " elements, but the input ", input.numel(), " (invalid tensor size)");
    }
    calls.outputs = outputs[0];
    keep(calls, outputs[0]);
    const bool isInPlace = areAdjacent(outputs[0]);
    auto into = isInPlace ? startOf(outputs[0]) : at::empty({size_ * input.numel()}, input.options());
    made.recvbuff = into.data_ptr();
    keep(calls, {into});
    if (!isInPlace) {
      calls.after = [into, parts = outputs[0]] { splitInto(into, parts); };
    }
  } else {
    TORCH_CHECK(outputs.empty(), "gather: requires empty output on non-root");
  }
  calls.calls = {made};
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
  checkDense(input, "gather_into_tensor");
  checkRoot(opts.rootRank, "gather_into_tensor");
  Calls calls{c10d::OpType::GATHER, "paceline:gather"};
  auto from = input.contiguous();
  auto made = moving(pclCollGather, input.scalar_type(), input.numel());
  made.root = static_cast<int>(opts.rootRank);
  made.sendbuff = from.const_data_ptr();
  keep(calls, {from});
  if (rank_ == made.root) {
    checkDense(output, "gather_into_tensor");
    checkSameType(output, input, "gather_into_tensor");
    TORCH_CHECK(output.numel() == size_ * input.numel(), "gather_into_tensor: the output has ", output.numel(),
                " elements for ", size_, " times ", input.numel());
    auto into = output.contiguous();
    made.recvbuff = into.data_ptr();
    calls.outputs = {output};
    keep(calls, {into, output});
    if (!into.is_same(output)) {
      calls.after = [into, output] { output.copy_(into); };
    }
  }
  calls.calls = {made};
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  auto& output = only(outputs, "scatter");
  checkDense(output, "scatter");
  checkRoot(opts.rootRank, "scatter");
  Calls calls{c10d::OpType::SCATTER, "paceline:scatter"};
  calls.outputs = outputs;
  auto into = output.contiguous();
  auto made = moving(pclCollScatter, output.scalar_type(), output.numel());
  made.root = static_cast<int>(opts.rootRank);
  made.recvbuff = into.data_ptr();
  keep(calls, {into, output});
  if (!into.is_same(output)) {
    calls.after = [into, output] { output.copy_(into); };
  }
  if (rank_ == made.root) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
                "scatter: Incorrect input list size. Input list size should be ", size_,
                ", same as size of the process group.");
    for (const auto& input : inputs[0]) {
      checkDense(input, "scatter");
      checkSameType(output, input, "scatter");
      TORCH_CHECK(output.numel() == input.numel(), "scatter: an input has ", input.numel(),
                  " elements, but the output ", output.numel(), " (invalid tensor size)");
    }
    auto from = areAdjacent(inputs[0]) ? startOf(inputs[0]) : joined(inputs[0]);
    made.sendbuff = from.const_data_ptr();
    keep(calls, inputs[0]);
    keep(calls, {from});
  } else {
    TORCH_CHECK(inputs.empty(), "scatter: requires empty input on non-root");
  }
  calls.calls = {made};
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(),
              "all_to_all: needs a tensor for each of ", size_, " ranks, but has ", inputs.size(), " inputs and ",
              outputs.size(), " outputs");
  for (int rank = 0; rank < size_; ++rank) {
    checkDense(inputs[rank], "all_to_all");
    checkDense(outputs[rank], "all_to_all");
    checkSameType(inputs[0], inputs[rank], "all_to_all");
    checkSameType(inputs[0], outputs[rank], "all_to_all");
  }
  Calls calls{c10d::OpType::ALLTOALL, "paceline:all_to_all"};
  calls.outputs = outputs;
  const auto units = moved(inputs[0].scalar_type()).units;
  const auto leaving = scaled(countsOf(inputs), units);
  const auto arriving = scaled(countsOf(outputs), units);
  auto from = areAdjacent(inputs) ? startOf(inputs) : joined(inputs);
  const bool isInPlace = areAdjacent(outputs);
  auto into = isInPlace ? startOf(outputs) : at::empty({static_cast<int64_t>(countOf(outputs))}, outputs[0].options());
  auto made = moving(pclCollAlltoAll, inputs[0].scalar_type(), 0);
  made.sendbuff = from.const_data_ptr();
  made.recvbuff = into.data_ptr();
  made.sendcounts = leaving.data();
  made.recvcounts = arriving.data();
  calls.calls = {made};
  keep(calls, inputs);
  keep(calls, outputs);
  keep(calls, {from, into});
  if (!isInPlace) {
    calls.after = [into, outputs] { splitInto(into, outputs); };
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                                   std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions& opts) {
  checkDense(output, "all_to_all_single");
  checkDense(input, "all_to_all_single");
  checkSameType(output, input, "all_to_all_single");
  Calls calls{c10d::OpType::ALLTOALL_BASE, "paceline:all_to_all"};
  calls.outputs = {output};
  auto from = input.contiguous();
  auto into = output.contiguous();
  const auto units = moved(input.scalar_type()).units;
  const auto leaving = scaled(splitsOf(input, inputSplits, size_, "input"), units);
  const auto arriving = scaled(splitsOf(output, outputSplits, size_, "output"), units);
  auto made = moving(pclCollAlltoAll, input.scalar_type(), 0);
  made.sendbuff = from.const_data_ptr();
  made.recvbuff = into.data_ptr();
  // Whether all parts are equal is the same on all ranks only if nobody gave splits, and a rank can't know that of
  // others.
  made.sendcounts = leaving.data();
  made.recvcounts = arriving.data();
  calls.calls = {made};
  keep(calls, {from, into, output});
  if (!into.is_same(output)) {
    calls.after = [into, output] { output.copy_(into); };
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

}  // namespace paceline
