#include "device_work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace paceline {

namespace {

// How often a host that waits for a device looks: at first, and at most.
constexpr std::chrono::microseconds LOOK_FIRST{20}, LOOK_MOST{1000};

}  // namespace

DeviceWork::DeviceWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs,
                       uint64_t sequence, c10::Stream stream)
    : Work(rank, type, title, std::move(outputs), sequence),
      stream_(stream),
      name_(title + 9),
      end_(stream.device_type()) {}

void DeviceWork::enter(std::shared_ptr<Communicator> communicator) {
  end_.record(stream_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    communicator_ = std::move(communicator);
    isEntered_ = true;
  }
  endRecord();
  cv_.notify_all();
}

void DeviceWork::fail(std::exception_ptr error) {
  settle(error);
}

void DeviceWork::awaitEntry(Milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto entered = [this] { return isEntered_ || completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, entered);
  } else if (!cv_.wait_for(lock, timeout, entered)) {
    lock.unlock();
    raiseLate(timeout);
  }
  if (exception_) {
    std::rethrow_exception(exception_);
  }
}

void DeviceWork::checkHealth() {
  const auto health = communicator_->health();
  if (health != pclSuccess) {
    const auto error = communicator_->error(health, name_);
    settle(error);
    std::rethrow_exception(exception());
  }
}

bool DeviceWork::isCompleted() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (completed_ || !isEntered_) {
      return completed_;
    }
  }
  if (!end_.query()) {
    return false;
  }
  try {
    checkHealth();
  } catch (...) {
    // It is kept.
  }
  settle(nullptr);
  return true;
}

void DeviceWork::awaitEnd(Milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  auto pause = LOOK_FIRST;
  while (!end_.query()) {
    if (timeout != kNoTimeout && std::chrono::steady_clock::now() - begin > timeout) {
      raiseLate(timeout);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, LOOK_MOST);
  }
  checkHealth();
  settle(nullptr);
}

bool DeviceWork::wait(Milliseconds timeout) {
  awaitEntry(timeout);
  if (isSettled()) {
    if (const auto error = exception()) {
      std::rethrow_exception(error);
    }
  } else {
    checkHealth();
  }
  end_.block(c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device()));
  if (waitsOnHost || timeout != kNoTimeout) {
    awaitEnd(timeout);
  }
  return true;
}

std::vector<at::Tensor> DeviceWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  std::exception_ptr error;
  try {
    awaitEntry(kNoTimeout);
    if (!isSettled()) {
      checkHealth();
    }
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (!deviceFuture_) {
    const std::vector<c10::Device> devices{stream_.device()};
    deviceFuture_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    if (error) {
      deviceFuture_->setError(error);
    } else {
      // The future remembers the place in the stream that is current here.
      c10::StreamGuard guard(stream_);
      deviceFuture_->markCompleted(c10::IValue(outputs_));
    }
  }
  return deviceFuture_;
}

void DeviceWork::abort() {
  std::shared_ptr<Communicator> communicator;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    communicator = communicator_;
  }
  if (communicator) {
    communicator->revoke("abort() of a work was called");
  }
}

}  // namespace paceline
