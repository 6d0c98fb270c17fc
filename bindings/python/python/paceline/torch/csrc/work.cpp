#include "work.h"

namespace paceline {

Work::Work(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence)
    : c10d::Work(rank, type, title, outputs), outputs_(std::move(outputs)), sequence_(sequence) {}

bool Work::isSettled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_;
}

bool Work::isCompleted() {
  if (isSettled()) {
    return true;
  }
  look();
  return isSettled();
}

bool Work::isSuccess() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr Work::exception() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return exception_;
}

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(isCompleted(), "the result is asked for before the call has ended: wait for it first");
  return outputs_;
}

void Work::synchronize() {
  wait();
}

bool Work::wait(Milliseconds timeout) {
  if (!await(timeout)) {
    raiseLate(timeout);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void Work::raiseLate(Milliseconds timeout) const {
  C10_THROW_ERROR(DistBackendError,
                  c10::str(c10d::opTypeToString(opType_), " on rank ", rank_, ": waited ", timeout.count(),
                           " ms, Timed out waiting for it to end (the call goes on)"));
}

void Work::endRecord() {
  std::function<void()> recorded;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    recorded = std::exchange(recordFunctionEndCallback_, nullptr);
  }
  if (recorded) {
    recorded();
  }
}

bool Work::await(Milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ended = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, ended);
    return true;
  }
  return cv_.wait_for(lock, timeout, ended);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  bool isEnded = false;
  std::exception_ptr error;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (future_) {
      return future_;
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future = future_;
    isEnded = completed_;
    error = exception_;
  }
  if (!isEnded) {
    attend();
  } else if (error) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
  return future;
}

uint64_t Work::getSequencenumber() const {
  return sequence_;
}

int Work::sourceRank() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return source_;
}

void Work::setSource(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  source_ = rank;
}

void Work::settle(std::exception_ptr error, const std::function<void()>& after) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::function<void()> recorded;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (completed_) {
      return;
    }
    if (!error && after) {
      try {
        after();
      } catch (...) {
        error = std::current_exception();
      }
    }
    exception_ = error;
    completed_ = true;
    future = future_;
    recorded = std::move(recordFunctionEndCallback_);
    recordFunctionEndCallback_ = nullptr;
  }
  if (recorded) {
    recorded();
  }
  cv_.notify_all();
  if (!future) {
    return;
  }
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
}

Reaper::~Reaper() {
  stop();
}

void Reaper::attend(std::function<void()> wait) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!isStopping_) {
      tasks_.push_back(std::move(wait));
      if (!thread_.joinable()) {
        thread_ = std::thread([this] { run(); });
      }
    }
  }
  if (wait) {
    // The communicator is closed, so that everything has ended.
    wait();
  }
  changed_.notify_one();
}

void Reaper::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return isStopping_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (...) {
      // Errors of calls are in their works. What else callbacks throw has nobody to go to.
    }
    // What it holds may be the last hold on tensors.
    task = nullptr;
    lock.lock();
  }
}

void Reaper::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    isStopping_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) {
    return;
  }
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Running::~Running() {
  if (handle != nullptr) {
    library().pclWorkFree(handle);
  }
}

CallWork::CallWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence,
                   std::shared_ptr<Running> running, std::shared_ptr<Reaper> reaper)
    : Work(rank, type, title, std::move(outputs), sequence), running_(std::move(running)), reaper_(std::move(reaper)) {}

CallWork::~CallWork() {
  if (isSettled()) {
    return;
  }
  // Nobody will wait, but the buffers are lent until the call has ended, and what it brought is put in its place.
  reaper_->attend([running = running_] {
    const auto result = library().pclWorkWait(running->handle, PCL_WAIT_FOREVER);
    if (result == pclSuccess && running->after) {
      running->after();
    }
  });
}

void CallWork::end(pclResult_t result) {
  if (result == pclSuccess) {
    settle(nullptr, running_->after);
  } else {
    settle(running_->communicator->error(result, running_->name.c_str()));
  }
}

bool CallWork::await(Milliseconds timeout) {
  if (isSettled()) {
    return true;
  }
  const auto limit = timeout == kNoTimeout ? PCL_WAIT_FOREVER : static_cast<uint64_t>(timeout.count());
  const auto result = library().pclWorkWait(running_->handle, limit);
  if (result == pclInProgress) {
    return false;
  }
  end(result);
  return true;
}

void CallWork::look() {
  int done = 0;
  const auto result = library().pclWorkTest(running_->handle, &done);
  if (result != pclSuccess || done != 0) {
    end(result);
  }
}

void CallWork::attend() {
  if (isAttended_.exchange(true)) {
    return;
  }
  auto self = c10::intrusive_ptr<CallWork>::reclaim_copy(this);
  reaper_->attend([self] { self->await(kNoTimeout); });
}

void CallWork::abort() {
  running_->communicator->revoke("abort() of a work was called");
}

JointWork::JointWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works, uint64_t sequence)
    : Work(rank, c10d::OpType::COALESCED, "paceline:coalesced", {}, sequence), works_(std::move(works)) {
  endRecord();
}

bool JointWork::isCompleted() {
  for (const auto& work : works_) {
    if (!work->isCompleted()) {
      return false;
    }
  }
  std::exception_ptr error;
  for (const auto& work : works_) {
    error = error ? error : work->exception();
  }
  settle(error);
  return true;
}

bool JointWork::wait(Milliseconds timeout) {
  std::exception_ptr error;
  for (const auto& work : works_) {
    try {
      work->wait(timeout);
    } catch (...) {
      // The others are waited for, too: they have tensors of the caller's.
      error = error ? error : std::current_exception();
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
  return true;
}

void JointWork::abort() {
  for (const auto& work : works_) {
    work->abort();
  }
}

}  // namespace paceline
