// Collectives that reduce.
#include "backend.h"

namespace paceline {

namespace {

// The scalar of PREMUL_SUM, as an element of the type.
at::Tensor factorOf(const c10d::ReduceOp& op, at::ScalarType type) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "ReduceOp.PREMUL_SUM without its factor");
  if (supplement->tensor_factor.defined()) {
    return supplement->tensor_factor.to(at::kCPU, c10::isComplexType(type) ? c10::toRealValueType(type) : type)
        .contiguous();
  }
  return at::full({1}, supplement->double_factor, c10::isComplexType(type) ? c10::toRealValueType(type) : type);
}

}  // namespace

std::optional<pclCall_t> Backend::reducing(pclCollective_t collective, at::ScalarType type, const c10d::ReduceOp& op,
                                           size_t count, Calls& calls) const {
  const auto how = reduced(type, op);
  if (!how) {
    checkFold(type, op);
    return std::nullopt;
  }
  auto made = call(collective);
  made.datatype = how->type;
  made.count = count * how->units;
  made.op = how->op;
  if (op == c10d::ReduceOp::PREMUL_SUM) {
    calls.factors.emplace_back(calls.calls.size(), factorOf(op, type));
  }
  return made;
}

// Gathers everybody's elements and reduces them here; on one rank, or, with the root -1, on all.
WorkPtr Backend::foldAll(Calls calls, const at::Tensor& input, const Tensors& outputs, const c10d::ReduceOp& op,
                         int root, Milliseconds timeout, bool isAsync) {
  auto all = at::empty({size_, input.numel()}, input.options());
  auto gathering = moving(root < 0 ? pclCollAllGather : pclCollGather, input.scalar_type(), input.numel());
  gathering.root = std::max(root, 0);
  gathering.sendbuff = input.const_data_ptr();
  gathering.recvbuff = all.data_ptr();
  calls.calls = {gathering};
  calls.kept = {input, all};
  if (root < 0 || root == rank_) {
    calls.after = [all, outputs, op] { splitInto(fold(all, op), outputs); };
  }
  return launch(std::move(calls), timeout, isAsync);
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  auto& tensor = only(tensors, "all_reduce");
  if (tensor.is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  checkDense(tensor, "all_reduce");
  Calls calls{c10d::OpType::ALLREDUCE, "paceline:all_reduce"};
  calls.outputs = tensors;
  auto flat = tensor.contiguous();
  auto made = reducing(pclCollAllReduce, tensor.scalar_type(), opts.reduceOp, tensor.numel(), calls);
  if (!made) {
    return foldAll(std::move(calls), flat, tensors, opts.reduceOp, -1, opts.timeout, opts.asyncOp);
  }
  made->sendbuff = made->recvbuff = flat.data_ptr();
  calls.calls = {*made};
  calls.kept = {flat, tensor};
  if (!flat.is_same(tensor)) {
    calls.after = [flat, tensor] { tensor.copy_(flat); };
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK(!tensors.empty(), "all_reduce_coalesced: requires non-empty tensor list");
  Calls calls{c10d::OpType::ALLREDUCE_COALESCED, "paceline:all_reduce"};
  for (const auto& tensor : tensors) {
    checkDense(tensor, "all_reduce_coalesced");
    checkSameType(tensors[0], tensor, "all_reduce_coalesced");
  }
  calls.outputs = tensors;
  auto flat = joined(tensors);
  auto made = reducing(pclCollAllReduce, flat.scalar_type(), opts.reduceOp, flat.numel(), calls);
  if (!made) {
    return foldAll(std::move(calls), flat, tensors, opts.reduceOp, -1, opts.timeout, opts.asyncOp);
  }
  made->sendbuff = made->recvbuff = flat.data_ptr();
  calls.calls = {*made};
  calls.kept = {flat};
  calls.after = [flat, tensors] { splitInto(flat, tensors); };
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  auto& tensor = only(tensors, "reduce");
  checkDense(tensor, "reduce");
  checkRoot(opts.rootRank, "reduce");
  const auto root = static_cast<int>(opts.rootRank);
  Calls calls{c10d::OpType::REDUCE, "paceline:reduce"};
  calls.outputs = tensors;
  auto flat = tensor.contiguous();
  auto made = reducing(pclCollReduce, tensor.scalar_type(), opts.reduceOp, tensor.numel(), calls);
  if (!made) {
    return foldAll(std::move(calls), flat, tensors, opts.reduceOp, root, opts.timeout, opts.asyncOp);
  }
  made->root = root;
  made->sendbuff = flat.const_data_ptr();
  // The other ranks' tensors stay as they are.
  made->recvbuff = rank_ == root ? flat.data_ptr() : nullptr;
  calls.calls = {*made};
  calls.kept = {flat, tensor};
  if (rank_ == root && !flat.is_same(tensor)) {
    calls.after = [flat, tensor] { tensor.copy_(flat); };
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

void Backend::addReduceScatter(Calls& calls, const at::Tensor& output, const at::Tensor& input,
                               const c10d::ReduceOp& op) {
  checkDense(output, "reduce_scatter_tensor");
  checkDense(input, "reduce_scatter_tensor");
  checkSameType(output, input, "reduce_scatter_tensor");
  TORCH_CHECK(input.numel() == output.numel() * size_,
              "reduce_scatter_tensor: input tensor must be the same size as output size times world size, but has ",
              input.numel(), " elements for ", output.numel(), " times ", size_);
  auto from = input.contiguous();
  auto into = output.contiguous();
  auto made = reducing(pclCollReduceScatter, input.scalar_type(), op, output.numel(), calls);
  auto after = calls.after;
  if (!made) {
    auto all = at::empty({size_, output.numel()}, output.options());
    made = moving(pclCollAlltoAll, input.scalar_type(), output.numel());
    made->recvbuff = all.data_ptr();
    calls.kept.push_back(all);
    calls.after = [after, all, output, op] {
      if (after) {
        after();
      }
      output.copy_(fold(all, op).view(output.sizes()));
    };
  } else {
    made->recvbuff = into.data_ptr();
    if (!into.is_same(output)) {
      calls.after = [after, into, output] {
        if (after) {
          after();
        }
        output.copy_(into);
      };
    }
  }
  made->sendbuff = from.const_data_ptr();
  calls.calls.push_back(*made);
  calls.kept.insert(calls.kept.end(), {from, into, output});
}

WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Calls calls{c10d::OpType::_REDUCE_SCATTER_BASE, "paceline:_reduce_scatter_base"};
  calls.outputs = {output};
  addReduceScatter(calls, output, input, opts.reduceOp);
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "reduce_scatter_tensor_coalesced: ", outputs.size(), " outputs for ",
              inputs.size(), " inputs");
  Calls calls{c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "paceline:reduce_scatter_tensor_coalesced"};
  calls.outputs = outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    addReduceScatter(calls, outputs[i], inputs[i], opts.reduceOp);
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  auto& output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
              "reduce_scatter: invalid input tensor list size, must be world size");
  auto& parts = inputs[0];
  checkDense(output, "reduce_scatter");
  std::vector<size_t> counts;
  bool isEven = true;
  for (const auto& part : parts) {
    checkDense(part, "reduce_scatter");
    checkSameType(output, part, "reduce_scatter");
    counts.push_back(static_cast<size_t>(part.numel()));
    isEven = isEven && part.numel() == output.numel();
  }
  TORCH_CHECK(parts[rank_].numel() == output.numel(), "reduce_scatter: the output has ", output.numel(),
              " elements, but this rank's input ", parts[rank_].numel());
  Calls calls{c10d::OpType::REDUCE_SCATTER, "paceline:reduce_scatter"};
  calls.outputs = outputs;
  auto from = areAdjacent(parts) ? startOf(parts) : joined(parts);
  auto into = output.contiguous();
  auto made = reducing(pclCollReduceScatter, output.scalar_type(), opts.reduceOp, output.numel(), calls);
  TORCH_CHECK(made || isEven, "reduce_scatter: of unequal parts, the paceline backend has no such operator for ",
              output.scalar_type());
  if (!made) {
    auto all = at::empty({size_, output.numel()}, output.options());
    made = moving(pclCollAlltoAll, output.scalar_type(), output.numel());
    made->recvbuff = all.data_ptr();
    calls.kept.push_back(all);
    calls.after = [all, output, op = opts.reduceOp] { output.copy_(fold(all, op).view(output.sizes())); };
  } else {
    const auto units = made->count / std::max<size_t>(output.numel(), 1);
    if (!isEven) {
      for (auto& count : counts) {
        count *= std::max<size_t>(units, 1);
      }
      made->sendcounts = counts.data();
    }
    made->recvbuff = into.data_ptr();
    if (!into.is_same(output)) {
      calls.after = [into, output] { output.copy_(into); };
    }
  }
  made->sendbuff = from.const_data_ptr();
  calls.calls = {*made};
  calls.kept.insert(calls.kept.end(), {from, into, output});
  calls.kept.insert(calls.kept.end(), parts.begin(), parts.end());
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

}  // namespace paceline
