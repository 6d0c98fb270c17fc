// One communicator of the library, and its errors as PyTorch's.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "library.h"

namespace paceline {

using Milliseconds = std::chrono::milliseconds;

// Who meets where.
struct Membership {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  Milliseconds timeout{0};
  // Of the group, for messages.
  std::string name;
  // The ranks in the job of the group's ranks; empty where they are the same.
  std::vector<int64_t> globalRanks;
};

// The device that a communicator's calls over memory of devices are for.
struct Attachment {
  int device = PCL_DEVICE_NONE;
  // Bytes of it that other ranks write to; 0: the library's own choice.
  uint64_t scratchBytes = 0;
};

class Communicator {
 public:
  // Collective: rank 0 puts into the store where to meet. Throws DistBackendError, naming who has not come.
  Communicator(Membership membership, const std::string& key, Attachment attachment = {});
  // Ends what is under way on this rank.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  pclComm_t handle() const {
    return handle_;
  }
  int rank() const {
    return membership_.rank;
  }
  int size() const {
    return membership_.size;
  }

  // Ends all calls on all ranks.
  void revoke(const std::string& reason);
  // Frees the communicator, early. Later calls are errors.
  void close();
  void setTimeout(Milliseconds timeout);

  // pclSuccess, or what ended the communicator.
  pclResult_t health() const;

  // The error that a function has just returned, as DistBackendError.
  std::exception_ptr error(pclResult_t result, const char* what) const;
  // An error of this side's own.
  std::exception_ptr error(const std::string& text) const;
  void check(pclResult_t result, const char* what) const;

  // "rank 2", with the rank in the job where that is another.
  std::string nameOf(int rank) const;

 private:
  Membership membership_;
  std::atomic<pclComm_t> handle_{nullptr};
};

}  // namespace paceline
