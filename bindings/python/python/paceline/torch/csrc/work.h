// Works: what c10d hands out for calls, whoever finishes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "communicator.h"

namespace paceline {

// A work that something finishes once: with an exception, or with what is in its outputs.
class Work : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(Milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;
  int sourceRank() const override;

  // Says how it ended, the first time. `after` runs before anybody sees the end; what it throws is the work's error.
  void settle(std::exception_ptr error, const std::function<void()>& after = nullptr);
  void setSource(int rank);
  bool isSettled() const;

 protected:
  // Waits until it has settled, for `timeout` at most (0: no limit). False if it hasn't.
  virtual bool await(Milliseconds timeout);
  // Looks whether it has ended, and settles it then.
  virtual void look() {}
  // Sees to it that it settles though nobody waits.
  virtual void attend() {}
  // Tells profilers that it is over, or out of the host's hands.
  void endRecord();
  // Throws that it hasn't ended within `timeout`.
  [[noreturn]] void raiseLate(Milliseconds timeout) const;

  const std::vector<at::Tensor> outputs_;

 private:
  const uint64_t sequence_;
  int source_ = -1;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Waits for started calls on behalf of futures, in a thread that begins with the first of them.
class Reaper {
 public:
  ~Reaper();
  void attend(std::function<void()> wait);
  // Waits for all and ends the thread.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
  bool isStopping_ = false;
};

// A started call of the library with what it needs until it has ended.
struct Running {
  std::shared_ptr<Communicator> communicator;
  std::string name;
  pclWork_t handle = nullptr;
  // What the call reads and writes.
  std::vector<at::Tensor> kept;
  std::function<void()> after;

  ~Running();
};

// The work of a started call.
class CallWork : public Work {
 public:
  CallWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, uint64_t sequence,
           std::shared_ptr<Running> running, std::shared_ptr<Reaper> reaper);
  ~CallWork() override;
  void abort() override;

 protected:
  bool await(Milliseconds timeout) override;
  void look() override;
  void attend() override;

 private:
  void end(pclResult_t result);

  std::shared_ptr<Running> running_;
  std::shared_ptr<Reaper> reaper_;
  std::atomic<bool> isAttended_{false};
};

// Several works as one.
class JointWork : public Work {
 public:
  JointWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works, uint64_t sequence);

  bool isCompleted() override;
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void abort() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace paceline
