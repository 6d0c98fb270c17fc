#include "messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/util/Exception.h>

namespace paceline {

namespace {

// A thread that takes messages off waits for the next as long as it takes: receives have timeouts of their own.
constexpr Milliseconds LONG{1000LL * 3600 * 24 * 365};

pclCall_t messageCall(pclCollective_t collective, int peer, Milliseconds timeout) {
  pclCall_t call = PCL_CALL_INITIALIZER;
  call.collective = collective;
  call.datatype = pclUint8;
  call.root = peer;
  call.timeoutMs = static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 1));
  return call;
}

Header headerOf(const char* data, size_t bytes, Tag tag) {
  Header header{tag, bytes, {}};
  if (0 < bytes && bytes <= Header::INSIDE) {
    std::memcpy(header.inside, data, bytes);
  }
  return header;
}

}  // namespace

Messages::Messages(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)), incoming_(communicator_->size()), leaving_(communicator_->size()) {}

Messages::~Messages() {
  stop();
}

void Messages::send(const char* data, size_t bytes, int target, Tag tag, Milliseconds timeout) {
  auto header = headerOf(data, bytes, tag);
  auto call = messageCall(pclCollSend, target, timeout);
  // A message and its header are not torn apart by another thread's.
  std::lock_guard<std::mutex> lock(leaving_[target]);
  call.sendbuff = &header;
  call.count = sizeof(header);
  communicator_->check(library().pclRun(&call, communicator_->handle(), nullptr), "send");
  if (bytes > Header::INSIDE) {
    call.sendbuff = data;
    call.count = bytes;
    communicator_->check(library().pclRun(&call, communicator_->handle(), nullptr), "send");
  }
}

std::vector<pclWork_t> Messages::startSend(const char* data, size_t bytes, int target, Tag tag, Milliseconds timeout,
                                           Header& header) {
  header = headerOf(data, bytes, tag);
  auto call = messageCall(pclCollSend, target, timeout);
  std::vector<pclWork_t> works(1, nullptr);
  std::lock_guard<std::mutex> lock(leaving_[target]);
  call.sendbuff = &header;
  call.count = sizeof(header);
  communicator_->check(library().pclStart(&call, communicator_->handle(), nullptr, &works[0]), "send");
  if (bytes > Header::INSIDE) {
    works.push_back(nullptr);
    call.sendbuff = data;
    call.count = bytes;
    communicator_->check(library().pclStart(&call, communicator_->handle(), nullptr, &works[1]), "send");
  }
  return works;
}

// In a thread of its own or the caller's: started, so that the communicator can be destroyed meanwhile.
void Messages::take(int source, void* data, size_t bytes, Milliseconds timeout) {
  auto call = messageCall(pclCollRecv, source, timeout);
  call.recvbuff = data;
  call.count = bytes;
  if (timeout < LONG) {
    communicator_->check(library().pclRun(&call, communicator_->handle(), nullptr), "recv");
    return;
  }
  pclWork_t work = nullptr;
  communicator_->check(library().pclStart(&call, communicator_->handle(), nullptr, &work), "recv");
  const auto result = library().pclWorkWait(work, PCL_WAIT_FOREVER);
  const auto error = result == pclSuccess ? nullptr : communicator_->error(result, "recv");
  library().pclWorkFree(work);
  if (error) {
    std::rethrow_exception(error);
  }
}

bool Messages::takeEarly(Receive& receive, int source) {
  auto& early = incoming_[source].early;
  const auto found = early.find(receive.tag);
  if (found == early.end()) {
    return false;
  }
  const auto message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    early.erase(found);
  }
  if (message.size() == receive.bytes) {
    if (!message.empty()) {
      std::memcpy(receive.data, message.data(), message.size());
    }
  } else {
    receive.error = communicator_->error("recv: the message from " + communicator_->nameOf(source) + " has " +
                                         std::to_string(message.size()) + " bytes, but the tensor " +
                                         std::to_string(receive.bytes));
  }
  receive.isTaken = receive.isDone = true;
  receive.source = source;
  return true;
}

void Messages::enqueue(const std::shared_ptr<Receive>& receive, int source) {
  incoming_[source].waiting.push_back(receive);
}

std::shared_ptr<Receive> Messages::match(int source, Tag tag) {
  auto& waiting = incoming_[source].waiting;
  for (auto at = waiting.begin(); at != waiting.end();) {
    if ((*at)->isTaken) {
      // Another source's message was given to it.
      at = waiting.erase(at);
    } else if ((*at)->tag == tag) {
      auto found = *at;
      waiting.erase(at);
      found->isTaken = true;
      return found;
    } else {
      ++at;
    }
  }
  return nullptr;
}

void Messages::finish(const std::shared_ptr<Receive>& receive, int source, std::exception_ptr error, Lock& lock) {
  receive->isDone = true;
  receive->source = source;
  receive->error = error;
  changed_.notify_all();
  // It may hold what holds the receive.
  const auto ended = std::exchange(receive->ended, nullptr);
  if (ended) {
    lock.unlock();
    ended(source, error);
    lock.lock();
  }
}

void Messages::failAll(int source, std::exception_ptr error, Lock& lock) {
  auto& incoming = incoming_[source];
  incoming.failed = error;
  while (!incoming.waiting.empty()) {
    auto receive = incoming.waiting.front();
    incoming.waiting.pop_front();
    if (!receive->isTaken) {
      receive->isTaken = true;
      finish(receive, source, error, lock);
    }
  }
}

void Messages::takeOne(int source, Milliseconds timeout, Lock& lock) {
  Header header;
  lock.unlock();
  std::exception_ptr error;
  try {
    take(source, &header, sizeof(header), timeout);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) {
    failAll(source, error, lock);
    return;
  }
  auto receive = match(source, header.tag);
  const bool fits = receive && receive->bytes == header.bytes;
  std::vector<char> apart;
  char* into = fits ? receive->data : nullptr;
  if (!fits) {
    apart.resize(header.bytes);
    into = apart.data();
  }
  if (header.bytes > Header::INSIDE) {
    lock.unlock();
    try {
      take(source, into, header.bytes, timeout);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
  } else if (header.bytes > 0) {
    std::memcpy(into, header.inside, header.bytes);
  }
  if (error) {
    if (receive) {
      finish(receive, source, error, lock);
    }
    failAll(source, error, lock);
  } else if (fits) {
    finish(receive, source, nullptr, lock);
  } else if (receive) {
    finish(
        receive, source,
        communicator_->error("recv: the message from " + communicator_->nameOf(source) + " has " +
                             std::to_string(header.bytes) + " bytes, but the tensor " + std::to_string(receive->bytes)),
        lock);
  } else {
    incoming_[source].early[header.tag].push_back(std::move(apart));
    // Somebody may have asked for it while it came.
    auto later = match(source, header.tag);
    if (later) {
      takeEarly(*later, source);
      finish(later, source, later->error, lock);
    }
  }
}

bool Messages::await(const std::shared_ptr<Receive>& receive, int source, Milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Lock lock(mutex_);
  auto& incoming = incoming_[source];
  while (!receive->isDone) {
    if (incoming.isDriven || receive->isTaken) {
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !receive->isTaken) {
        receive->isTaken = true;
        return false;
      }
      continue;
    }
    incoming.isDriven = true;
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
    takeOne(source, std::clamp(left, Milliseconds(1), LONG - Milliseconds(1)), lock);
    incoming.isDriven = false;
    if (!incoming.waiting.empty()) {
      changed_.notify_all();
    }
  }
  return true;
}

void Messages::startReceive(const std::shared_ptr<Receive>& receive, const std::vector<int>& sources) {
  Lock lock(mutex_);
  for (const auto source : sources) {
    if (takeEarly(*receive, source)) {
      finish(receive, source, receive->error, lock);
      return;
    }
    if (incoming_[source].failed) {
      receive->isTaken = true;
      finish(receive, source, incoming_[source].failed, lock);
      return;
    }
  }
  for (const auto source : sources) {
    enqueue(receive, source);
    auto& thread = incoming_[source].thread;
    if (!thread.joinable() && !isStopping_) {
      thread = std::thread([this, source] { drive(source); });
    }
  }
  changed_.notify_all();
}

bool Messages::withdraw(const std::shared_ptr<Receive>& receive) {
  Lock lock(mutex_);
  if (receive->isTaken) {
    return false;
  }
  receive->isTaken = true;
  return true;
}

void Messages::drive(int source) {
  Lock lock(mutex_);
  auto& incoming = incoming_[source];
  const auto isWanted = [&incoming] {
    auto& waiting = incoming.waiting;
    while (!waiting.empty() && waiting.front()->isTaken) {
      waiting.pop_front();
    }
    return !waiting.empty() && !incoming.isDriven;
  };
  while (true) {
    changed_.wait(lock, [&] { return isStopping_ || isWanted(); });
    if (isStopping_) {
      return;
    }
    incoming.isDriven = true;
    takeOne(source, LONG, lock);
    incoming.isDriven = false;
    changed_.notify_all();
  }
}

void Messages::stop() {
  Lock lock(mutex_);
  isStopping_ = true;
  changed_.notify_all();
  for (auto& incoming : incoming_) {
    if (incoming.thread.joinable()) {
      auto thread = std::move(incoming.thread);
      lock.unlock();
      thread.join();
      lock.lock();
    }
  }
}

}  // namespace paceline
