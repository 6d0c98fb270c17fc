// Messages with tags over the library's, which have none: each begins with a header that says its tag and its length.
//
// Messages between two ranks come in the order sent. Whoever receives takes them off in that order, gives each to the
// earliest receive of its tag, and keeps it where there is none. Taking off is done by one thread at a time for each
// source: by the one that waits in a blocking receive, or by a thread of the source's own, which begins with the first
// started receive.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "communicator.h"

namespace paceline {

using Tag = uint64_t;

// A receive that was asked for. Its members belong to the lock of its `Messages`.
struct Receive {
  Tag tag = 0;
  char* data = nullptr;
  size_t bytes = 0;
  // Called once, without a lock, with the source or an error.
  std::function<void(int, std::exception_ptr)> ended;

  bool isTaken = false;
  bool isDone = false;
  int source = -1;
  std::exception_ptr error;
};

// What a message begins with. Short messages are in it.
struct Header {
  static constexpr size_t INSIDE = 112;
  uint64_t tag;
  uint64_t bytes;
  char inside[INSIDE];
};

class Messages {
 public:
  explicit Messages(std::shared_ptr<Communicator> communicator);
  ~Messages();

  // Sends and waits. Throws.
  void send(const char* data, size_t bytes, int target, Tag tag, Milliseconds timeout);
  // Starts a message: the works to wait for, in order. `header` lasts until they have ended.
  std::vector<pclWork_t> startSend(const char* data, size_t bytes, int target, Tag tag, Milliseconds timeout,
                                   Header& header);

  void startReceive(const std::shared_ptr<Receive>& receive, const std::vector<int>& sources);
  // Waits for a started receive, and takes messages off meanwhile. False after the timeout: it is withdrawn then.
  bool await(const std::shared_ptr<Receive>& receive, int source, Milliseconds timeout);
  // Takes a receive back; false if a message has been given to it.
  bool withdraw(const std::shared_ptr<Receive>& receive);

  // Ends the threads; the communicator is closed.
  void stop();

 private:
  struct Incoming {
    std::deque<std::shared_ptr<Receive>> waiting;
    // Messages that came before anybody asked for them.
    std::map<Tag, std::deque<std::vector<char>>> early;
    // Somebody takes messages off.
    bool isDriven = false;
    std::exception_ptr failed;
    std::thread thread;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool takeEarly(Receive& receive, int source);
  void enqueue(const std::shared_ptr<Receive>& receive, int source);
  std::shared_ptr<Receive> match(int source, Tag tag);
  // Takes one message off and gives it to whom it is for. The lock is free meanwhile.
  void takeOne(int source, Milliseconds timeout, Lock& lock);
  void take(int source, void* data, size_t bytes, Milliseconds timeout);
  void finish(const std::shared_ptr<Receive>& receive, int source, std::exception_ptr error, Lock& lock);
  void failAll(int source, std::exception_ptr error, Lock& lock);
  void drive(int source);

  std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Incoming> incoming_;
  std::vector<std::mutex> leaving_;
  bool isStopping_ = false;
};

}  // namespace paceline
