#include "devices.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace paceline {

namespace {

constexpr std::pair<int, int> COLLECTIVES{-1, -1};

// Of a lane for messages, which has no use for the room of collectives: the least that the library takes.
constexpr uint64_t SCRATCH_OF_MESSAGES = 1 << 20;

}  // namespace

Devices::Devices(Membership membership) : membership_(std::move(membership)) {}

bool Devices::areThere() const {
  return c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
         c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
}

LanePlan Devices::planOf(Way way, c10::Device device) const {
  LanePlan plan{membership_, "paceline/cuda", device};
  // Waiting holds a connection up, and others may be using this one.
  plan.membership.store = membership_.store->clone();
  if (way == COLLECTIVES) {
    return plan;
  }
  const auto [from, to] = way;
  const auto ofJob = [&](int rank) {
    const auto& ranks = membership_.globalRanks;
    return static_cast<size_t>(rank) < ranks.size() ? ranks[rank] : rank;
  };
  plan.key += "/" + std::to_string(from) + "-" + std::to_string(to);
  plan.membership.name += " messages from rank " + std::to_string(ofJob(from)) + " to " + std::to_string(ofJob(to));
  plan.membership.globalRanks = {ofJob(from), ofJob(to)};
  plan.membership.rank = membership_.rank == from ? 0 : 1;
  plan.membership.size = 2;
  plan.scratchBytes = SCRATCH_OF_MESSAGES;
  plan.isMadeAside = true;
  return plan;
}

std::shared_ptr<Lane> Devices::laneOf(Way way, c10::Device device) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& lane = lanes_[way];
  if (!lane) {
    TORCH_CHECK_WITH(DistBackendError, !isClosed_, "the process group was destroyed");
    lane = std::make_shared<Lane>(planOf(way, device));
  }
  TORCH_CHECK(lane->device() == device, "the tensor is on ", device, ", but this rank's calls of this kind are on ",
              lane->device(), ": a group has one device on each rank; make another group for the other device");
  return lane;
}

void Devices::connect(c10::Device device) {
  laneOf(COLLECTIVES, device)->open();
}

c10::intrusive_ptr<DeviceWork> Devices::launch(Calls calls, c10::Device device, Milliseconds timeout,
                                               uint64_t sequence) {
  return laneOf(COLLECTIVES, device)->launch(std::move(calls), timeout, membership_.rank, sequence);
}

c10::intrusive_ptr<DeviceWork> Devices::message(Calls calls, c10::Device device, int from, int to,
                                                Milliseconds timeout, uint64_t sequence) {
  for (auto& call : calls.calls) {
    // In the lane, the sender is rank 0.
    call.root = membership_.rank == from ? 1 : 0;
  }
  return laneOf({from, to}, device)->launch(std::move(calls), timeout, membership_.rank, sequence);
}

std::vector<std::shared_ptr<Lane>> Devices::lanes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Lane>> lanes;
  for (const auto& [way, lane] : lanes_) {
    if (lane) {
      lanes.push_back(lane);
    }
  }
  return lanes;
}

pclResult_t Devices::health() const {
  for (const auto& lane : lanes()) {
    const auto health = lane->health();
    if (health != pclSuccess) {
      return health;
    }
  }
  return pclSuccess;
}

void Devices::setTimeout(Milliseconds timeout) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    membership_.timeout = timeout;
  }
  for (const auto& lane : lanes()) {
    lane->setTimeout(timeout);
  }
}

void Devices::revoke(const std::string& reason) {
  for (const auto& lane : lanes()) {
    lane->revoke(reason);
  }
}

void Devices::drain() {
  for (const auto& lane : lanes()) {
    lane->drain();
  }
}

void Devices::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    isClosed_ = true;
  }
  for (const auto& lane : lanes()) {
    lane->close();
  }
}

}  // namespace paceline
