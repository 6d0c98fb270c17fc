// A group's calls over memory of devices: a lane for collectives, and one for messages from each rank to each other, so
// that no message holds up another or a collective.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "lane.h"

namespace paceline {

class Devices {
 public:
  explicit Devices(Membership membership);

  // Whether PyTorch has devices of the kind that the library knows.
  bool areThere() const;
  // Makes the lane for collectives. Collective.
  void connect(c10::Device device);
  c10::intrusive_ptr<DeviceWork> launch(Calls calls, c10::Device device, Milliseconds timeout, uint64_t sequence);
  // A message between this rank and another. The first between two ranks waits for both of them, but not in the caller.
  c10::intrusive_ptr<DeviceWork> message(Calls calls, c10::Device device, int from, int to, Milliseconds timeout,
                                         uint64_t sequence);

  pclResult_t health() const;
  void setTimeout(Milliseconds timeout);
  void revoke(const std::string& reason);
  // Waits for what is in the streams: see `Lane`.
  void drain();
  void close();

 private:
  // From which rank to which; collectives: none to none.
  using Way = std::pair<int, int>;

  std::shared_ptr<Lane> laneOf(Way way, c10::Device device);
  LanePlan planOf(Way way, c10::Device device) const;
  std::vector<std::shared_ptr<Lane>> lanes() const;

  Membership membership_;
  mutable std::mutex mutex_;
  std::map<Way, std::shared_ptr<Lane>> lanes_;
  bool isClosed_ = false;
};

}  // namespace paceline
