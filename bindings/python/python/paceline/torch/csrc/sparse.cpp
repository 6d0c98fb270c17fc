// all_reduce of sparse tensors: everybody's indices and values, added up.
//
// How many there are is known only when the first of three calls has ended, so that these run in a thread, over a
// communicator of their own: what else the rank starts meanwhile doesn't come between them.
#include "backend.h"

namespace paceline {

namespace {

void run(Communicator& communicator, pclCall_t& call, Milliseconds timeout) {
  call.timeoutMs = static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 1));
  communicator.check(library().pclRun(&call, communicator.handle(), nullptr), "all_reduce of sparse tensors");
}

// All ranks' elements, of which there are `counts`, one rank's behind the other's.
at::Tensor gathered(Communicator& communicator, const at::Tensor& own, const std::vector<size_t>& counts,
                    Milliseconds timeout) {
  size_t total = 0;
  for (const auto count : counts) {
    total += count;
  }
  const auto how = moved(own.scalar_type());
  auto units = counts;
  for (auto& count : units) {
    count *= how.units;
  }
  auto all = at::empty({static_cast<int64_t>(total)}, own.options());
  pclCall_t call = PCL_CALL_INITIALIZER;
  call.collective = pclCollAllGather;
  call.datatype = how.type;
  call.sendbuff = own.const_data_ptr();
  call.recvbuff = all.data_ptr();
  call.recvcounts = units.data();
  run(communicator, call, timeout);
  return all;
}

at::Tensor sum(Communicator& communicator, const at::Tensor& input, Milliseconds timeout) {
  const auto own = input.coalesce();
  const auto ranks = static_cast<size_t>(communicator.size());
  auto mine = at::full({1}, own._nnz(), at::kLong);
  auto lengths = at::empty({communicator.size()}, at::kLong);
  pclCall_t call = PCL_CALL_INITIALIZER;
  call.collective = pclCollAllGather;
  call.datatype = pclInt64;
  call.count = 1;
  call.sendbuff = mine.const_data_ptr();
  call.recvbuff = lengths.data_ptr();
  run(communicator, call, timeout);

  const auto values = own._values().contiguous();
  const auto indices = own._indices().contiguous();
  const auto row = values.numel() / std::max<int64_t>(values.size(0), 1);
  auto shape = values.sizes().vec();
  int64_t rowOf = 1;
  for (size_t dim = 1; dim < shape.size(); ++dim) {
    rowOf *= shape[dim];
  }
  TORCH_INTERNAL_ASSERT(values.size(0) == 0 || row == rowOf);
  std::vector<size_t> indexCounts, valueCounts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto length = lengths[static_cast<int64_t>(rank)].item<int64_t>();
    indexCounts.push_back(static_cast<size_t>(length * input.sparse_dim()));
    valueCounts.push_back(static_cast<size_t>(length * rowOf));
  }
  const auto allIndices = gathered(communicator, indices.reshape({-1}), indexCounts, timeout);
  const auto allValues = gathered(communicator, values.reshape({-1}), valueCounts, timeout);

  std::vector<at::Tensor> parts;
  int64_t index = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto count = static_cast<int64_t>(indexCounts[rank]);
    parts.push_back(allIndices.narrow(0, index, count)
                        .view({input.sparse_dim(), lengths[static_cast<int64_t>(rank)].item<int64_t>()}));
    index += count;
  }
  shape[0] = lengths.sum().item<int64_t>();
  return at::sparse_coo_tensor(at::cat(parts, 1), allValues.view(shape), input.sizes(), input.options()).coalesce();
}

}  // namespace

WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  auto& tensor = only(tensors, "all_reduce");
  TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
              "all_reduce: of sparse tensors, only those with ",
              "coordinates in memory of the host are supported, not ", tensor.layout(), " on ", tensor.device());
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
              "unsupported reduction operation: all_reduce of sparse tensors only works with ReduceOp.SUM");
  if (!stagedReaper_) {
    stagedReaper_ = std::make_shared<Reaper>();
  }
  auto work = c10::make_intrusive<Work>(rank_, c10d::OpType::_ALLREDUCE_SPARSE, "paceline:sparse_all_reduce", tensors,
                                        ++sequence_);
  stagedReaper_->attend([this, work, tensor, timeout = timeoutOf(opts.timeout)]() mutable {
    std::exception_ptr error;
    try {
      if (!staged_) {
        auto membership = membership_;
        membership.store = membership.store->clone();
        staged_ = std::make_shared<Communicator>(membership, "paceline/staged");
      }
      tensor.copy_(sum(*staged_, tensor, timeout));
    } catch (...) {
      error = std::current_exception();
    }
    work->settle(error);
  });
  if (!opts.asyncOp) {
    work->wait();
  }
  return work;
}

}  // namespace paceline
