// Works of calls over memory of devices: what orders streams behind them, and what tells how they ended.
//
// Streams and events are c10's for any kind of device, so that nothing here needs CUDA's headers, and the extension is
// compiled in the same way for every PyTorch.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "work.h"

namespace paceline {

// A work that a stream has been given, or will be. Waiting for it has the current stream wait, and not the host.
class DeviceWork : public Work {
 public:
  DeviceWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence,
             c10::Stream stream);

  bool isCompleted() override;
  std::vector<at::Tensor> result() override;
  // With a timeout, or if `waitsOnHost`, the host waits, too.
  bool wait(Milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  void abort() override;

  // The stream has been given everything.
  void enter(std::shared_ptr<Communicator> communicator);
  // It never will be.
  void fail(std::exception_ptr error);

  bool waitsOnHost = false;

 private:
  // Waits until the stream has been given it; throws why it wasn't.
  void awaitEntry(Milliseconds timeout);
  // Throws if the communicator's calls have failed: then this may be one of them.
  void checkHealth();
  void awaitEnd(Milliseconds timeout);

  const c10::Stream stream_;
  // Past the word "paceline:".
  const char* const name_;
  std::shared_ptr<Communicator> communicator_;
  // Behind it in the stream.
  c10::Event end_;
  bool isEntered_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> deviceFuture_;
};

}  // namespace paceline
