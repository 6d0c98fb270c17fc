// A lane: a communicator over memory of one device on each rank, and the stream of this rank's in which its calls run.
//
// Calls of a lane run one after the other; those of different lanes don't wait for each other. A lane's communicator is
// made at its first call.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "calls.h"
#include "device_work.h"

namespace paceline {

// What a lane needs to be made.
struct LanePlan {
  Membership membership;
  // In the store, of whatever belongs to this lane.
  std::string key;
  c10::Device device;
  // Bytes of the device that other ranks write to; 0: the library's own choice.
  uint64_t scratchBytes = 0;
  // Made beside the caller, who may have other lanes to make with other ranks.
  bool isMadeAside = false;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(LanePlan plan);
  ~Lane();

  // Makes the communicator now, if there is none. Throws DistBackendError.
  void open();
  // Puts calls into the lane's stream, behind what the current stream of the device has been given. `rank` and
  // `sequence` are the work's.
  c10::intrusive_ptr<DeviceWork> launch(Calls calls, Milliseconds timeout, int rank, uint64_t sequence);

  c10::Device device() const {
    return plan_.device;
  }
  pclResult_t health() const;
  void setTimeout(Milliseconds timeout);
  // Ends all calls on all ranks.
  void revoke(const std::string& reason);
  // Waits for what is in the stream, for the group's timeout at most, or until the communicator fails.
  void drain();
  // Frees the communicator; what is in the stream ends with an error. Later calls are errors.
  void close();

 private:
  std::shared_ptr<Communicator> communicator() const;
  bool isClosed() const;
  Milliseconds timeout() const;
  // Waits until the other rank of two wants this lane, too.
  void meet();
  void enqueue(const c10::intrusive_ptr<DeviceWork>& work, Calls& calls, const c10::Event& begin, Milliseconds timeout);

  LanePlan plan_;
  const c10::Stream stream_;
  std::mutex opening_;
  // Of calls into the stream.
  std::mutex order_;
  mutable std::mutex state_;
  std::shared_ptr<Communicator> communicator_;
  bool isClosed_ = false;
  // Calls that wait in `aside_` for the communicator to be made: later ones must queue behind them.
  size_t nQueued_ = 0;
  Reaper aside_;
};

}  // namespace paceline
