#include "lane.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace paceline {

namespace {

using c10::impl::VirtualGuardImpl;

// How often a rank looks whether another has come, and whether a stream is done.
constexpr Milliseconds LOOK_EVERY{2};

[[noreturn]] void raise(const std::string& text) {
  C10_THROW_ERROR(DistBackendError, text);
}

std::string nameOf(const Membership& membership, int rank) {
  const auto& ranks = membership.globalRanks;
  return "rank " + std::to_string(static_cast<size_t>(rank) < ranks.size() ? ranks[rank] : rank);
}

}  // namespace

Lane::Lane(LanePlan plan)
    : plan_(std::move(plan)),
      stream_(VirtualGuardImpl(plan_.device.type()).getStreamFromGlobalPool(plan_.device, /*isHighPriority=*/true)) {}

Lane::~Lane() {
  close();
}

std::shared_ptr<Communicator> Lane::communicator() const {
  std::lock_guard<std::mutex> lock(state_);
  return communicator_;
}

bool Lane::isClosed() const {
  std::lock_guard<std::mutex> lock(state_);
  return isClosed_;
}

Milliseconds Lane::timeout() const {
  std::lock_guard<std::mutex> lock(state_);
  return plan_.membership.timeout;
}

void Lane::meet() {
  auto& membership = plan_.membership;
  const auto other = 1 - membership.rank;
  const auto here = [&](int rank) { return plan_.key + "/here/" + std::to_string(rank); };
  membership.store->set(here(membership.rank), std::vector<uint8_t>{1});
  const auto begin = std::chrono::steady_clock::now();
  while (!membership.store->check({here(other)})) {
    const auto limit = timeout();
    const auto who = nameOf(membership, other) + " to take part in the first message over memory of devices";
    if (isClosed()) {
      raise("the process group was destroyed before it was the turn of " + who);
    }
    if (std::chrono::steady_clock::now() - begin > limit) {
      raise("Timed out: waited " + std::to_string(limit.count()) + " ms for " + who);
    }
    std::this_thread::sleep_for(LOOK_EVERY);
  }
}

void Lane::open() {
  std::lock_guard<std::mutex> once(opening_);
  {
    std::lock_guard<std::mutex> lock(state_);
    if (communicator_) {
      return;
    }
    if (isClosed_) {
      raise("the process group was destroyed");
    }
  }
  if (plan_.isMadeAside) {
    meet();
  }
  Attachment attachment;
  attachment.device = plan_.device.index();
  attachment.scratchBytes = plan_.scratchBytes;
  auto made = std::make_shared<Communicator>(plan_.membership, plan_.key, attachment);
  if (plan_.isMadeAside) {
    try {
      plan_.membership.store->deleteKey(plan_.key + "/here/" + std::to_string(plan_.membership.rank));
    } catch (const std::exception&) {
      // Some stores can't: names are used once there.
    }
  }
  std::lock_guard<std::mutex> lock(state_);
  communicator_ = std::move(made);
}

void Lane::enqueue(const c10::intrusive_ptr<DeviceWork>& work, Calls& calls, const c10::Event& begin,
                   Milliseconds timeout) {
  const auto communicator = this->communicator();
  const VirtualGuardImpl devices(plan_.device.type());
  begin.block(stream_);
  {
    const Operators operators(calls, *communicator);
    for (auto& call : calls.calls) {
      call.timeoutMs = static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 1));
      communicator->check(library().pclRun(&call, communicator->handle(), stream_.native_handle()), calls.name());
    }
  }
  if (calls.after) {
    c10::StreamGuard guard(stream_);
    calls.after();
  }
  for (const auto* tensors : {&calls.kept, &calls.outputs}) {
    for (const auto& tensor : *tensors) {
      // Its memory is given to nobody else before the stream has got here.
      devices.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
    }
  }
  work->enter(communicator);
}

c10::intrusive_ptr<DeviceWork> Lane::launch(Calls calls, Milliseconds timeout, int rank, uint64_t sequence) {
  c10::Event begin(plan_.device.type());
  begin.record(VirtualGuardImpl(plan_.device.type()).getStream(plan_.device));
  if (!plan_.isMadeAside) {
    open();
  }
  auto work = c10::make_intrusive<DeviceWork>(rank, calls.type, calls.title, calls.outputs, sequence, stream_);
  {
    std::lock_guard<std::mutex> order(order_);
    if (isClosed()) {
      raise(std::string(calls.name()) + ": the process group was destroyed");
    }
    if (nQueued_ == 0 && communicator()) {
      enqueue(work, calls, begin, timeout);
      return work;
    }
    ++nQueued_;
  }
  auto queued = std::make_shared<std::pair<Calls, c10::Event>>(std::move(calls), std::move(begin));
  aside_.attend([this, work, queued, timeout] {
    try {
      open();
      enqueue(work, queued->first, queued->second, timeout);
    } catch (...) {
      work->fail(std::current_exception());
    }
    std::lock_guard<std::mutex> order(order_);
    --nQueued_;
  });
  return work;
}

pclResult_t Lane::health() const {
  const auto communicator = this->communicator();
  return communicator ? communicator->health() : pclSuccess;
}

void Lane::setTimeout(Milliseconds timeout) {
  std::lock_guard<std::mutex> lock(state_);
  plan_.membership.timeout = timeout;
  if (communicator_) {
    communicator_->setTimeout(timeout);
  }
}

void Lane::revoke(const std::string& reason) {
  if (const auto communicator = this->communicator()) {
    communicator->revoke(reason);
  }
}

void Lane::drain() {
  const auto communicator = this->communicator();
  const auto begin = std::chrono::steady_clock::now();
  while (communicator && communicator->health() == pclSuccess && std::chrono::steady_clock::now() - begin < timeout()) {
    try {
      if (stream_.query()) {
        return;
      }
    } catch (const std::exception&) {
      // The device is lost, and with it what was in the stream.
      return;
    }
    std::this_thread::sleep_for(LOOK_EVERY);
  }
}

void Lane::close() {
  {
    std::lock_guard<std::mutex> lock(state_);
    if (std::exchange(isClosed_, true)) {
      return;
    }
  }
  aside_.stop();
  if (const auto communicator = this->communicator()) {
    communicator->close();
  }
}

}  // namespace paceline
