// c10d's backend "paceline": each method turns tensors into calls of the library, which `launch` runs or starts.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "calls.h"
#include "devices.h"
#include "messages.h"
#include "tensors.h"
#include "work.h"

namespace paceline {

using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class Backend : public c10d::Backend {
 public:
  explicit Backend(Membership membership);
  ~Backend() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override;
  bool supportsSplitting() const override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  void abort() override;
  void shutdown() override;
  // Makes what collectives over memory of this device need, and has barriers be there.
  void eagerConnectSingleDevice(at::Device device) override;
  // Calls until the end become one work. They aren't held back meanwhile.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // reductions.cpp
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  // sparse.cpp
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;

  // gathers.cpp
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                            std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions& opts) override;

  // points.cpp
  WorkPtr send(Tensors& tensors, int target, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) override;

 private:
  void close();
  // Runs the calls to their end or starts them, or puts them into a stream, as the tensors' device has it.
  WorkPtr launch(Calls calls, Milliseconds timeout, bool isAsync);
  WorkPtr launchOnHost(Calls calls, Milliseconds timeout, bool isAsync);
  // What `endCoalescing` is to give, too.
  WorkPtr noted(WorkPtr work);
  // An empty call, and one that moves elements.
  pclCall_t call(pclCollective_t collective) const;
  pclCall_t moving(pclCollective_t collective, at::ScalarType type, size_t count) const;
  // A call that reduces `count` elements: by the library, or, if that has no such operator, nothing.
  std::optional<pclCall_t> reducing(pclCollective_t collective, at::ScalarType type, const c10d::ReduceOp& op,
                                    size_t count, Calls& calls) const;
  WorkPtr foldAll(Calls calls, const at::Tensor& input, const Tensors& outputs, const c10d::ReduceOp& op, int root,
                  Milliseconds timeout, bool isAsync);
  void addReduceScatter(Calls& calls, const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op);
  void addAllGather(Calls& calls, const at::Tensor& output, const at::Tensor& input);
  void addAllGatherLists(Calls& calls, std::vector<std::function<void()>>& copies, const Tensors& outputs,
                         const at::Tensor& input);
  WorkPtr startReceive(Tensors& tensors, const std::vector<int>& sources, int tag, c10d::OpType type, const char* title,
                       const std::string& from);
  // The device whose stream a barrier is in; none: it is the host's.
  std::optional<at::Device> deviceOfBarrier(const c10d::BarrierOptions& opts) const;
  void checkRoot(int64_t root, const char* call) const;
  Milliseconds timeoutOf(Milliseconds given) const;
  std::vector<int64_t> ranksInJob() const;

  Membership membership_;
  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Reaper> reaper_;
  std::shared_ptr<Messages> messages_;
  // For messages that leave, one for each target: they end when others receive them, and must not hold up each other or
  // calls.
  std::vector<std::shared_ptr<Reaper>> senders_;
  // For calls that are several calls of the library, whose sizes follow from each other: made at the first.
  std::shared_ptr<Communicator> staged_;
  std::shared_ptr<Reaper> stagedReaper_;
  Devices devices_;
  std::optional<at::Device> boundDevice_;
  std::mutex coalescing_;
  std::optional<std::vector<WorkPtr>> coalesced_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint64_t> monitored_{0};
};

}  // namespace paceline
