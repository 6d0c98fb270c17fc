// Messages between two ranks, and barriers.
#include "backend.h"

#include <future>
#include <sstream>

namespace paceline {

namespace {

// Tags of the backend's own messages: c10d's are non-negative ints.
constexpr Tag MONITORED = Tag(1) << 40;
constexpr Tag ACKNOWLEDGED = Tag(1) << 41;

// A message over memory of a device: its bytes.
pclCall_t message(pclCollective_t collective, const at::Tensor& flat) {
  pclCall_t call = PCL_CALL_INITIALIZER;
  call.collective = collective;
  call.datatype = pclUint8;
  call.count = flat.nbytes();
  return call;
}

// The work of a message that leaves.
class SendWork : public Work {
 public:
  SendWork(int rank, const Tensors& tensors, uint64_t sequence, at::Tensor flat,
           std::shared_ptr<Communicator> communicator, std::shared_ptr<Reaper> reaper)
      : Work(rank, c10d::OpType::SEND, "paceline:send", tensors, sequence),
        state_(std::make_shared<State>()),
        reaper_(std::move(reaper)) {
    state_->flat = std::move(flat);
    state_->communicator = std::move(communicator);
  }

  ~SendWork() override {
    if (!isSettled()) {
      reaper_->attend([state = state_] {
        for (auto* work : state->works) {
          library().pclWorkWait(work, PCL_WAIT_FOREVER);
        }
      });
    }
  }

  Header& header() {
    return state_->header;
  }

  void begin(std::vector<pclWork_t> works) {
    state_->works = std::move(works);
  }

 protected:
  bool await(Milliseconds timeout) override {
    if (isSettled()) {
      return true;
    }
    const auto limit = timeout == kNoTimeout ? PCL_WAIT_FOREVER : static_cast<uint64_t>(timeout.count());
    for (auto* work : state_->works) {
      const auto result = library().pclWorkWait(work, limit);
      if (result == pclInProgress) {
        return false;
      }
      if (result != pclSuccess) {
        settle(state_->communicator->error(result, "send"));
        return true;
      }
    }
    settle(nullptr);
    return true;
  }

  void look() override {
    for (auto* work : state_->works) {
      int done = 0;
      const auto result = library().pclWorkTest(work, &done);
      if (result != pclSuccess) {
        settle(state_->communicator->error(result, "send"));
        return;
      }
      if (done == 0) {
        return;
      }
    }
    settle(nullptr);
  }

  void attend() override {
    auto self = c10::intrusive_ptr<SendWork>::reclaim_copy(this);
    reaper_->attend([self] { self->await(kNoTimeout); });
  }

 private:
  struct State {
    Header header;
    at::Tensor flat;
    std::shared_ptr<Communicator> communicator;
    std::vector<pclWork_t> works;
    ~State() {
      for (auto* work : works) {
        library().pclWorkFree(work);
      }
    }
  };
  std::shared_ptr<State> state_;
  std::shared_ptr<Reaper> reaper_;
};

// The work of a message that arrives.
class ReceiveWork : public Work {
 public:
  ReceiveWork(int rank, c10d::OpType type, const char* title, const Tensors& tensors, uint64_t sequence,
              std::shared_ptr<Communicator> communicator, std::shared_ptr<Messages> messages, int source,
              std::string from, Milliseconds limit)
      : Work(rank, type, title, tensors, sequence),
        communicator_(std::move(communicator)),
        messages_(std::move(messages)),
        source_(source),
        from_(std::move(from)),
        limit_(limit) {}

  std::shared_ptr<Receive> receive;

 protected:
  bool await(Milliseconds timeout) override {
    if (isSettled()) {
      return true;
    }
    const auto limit = timeout == kNoTimeout ? limit_ : timeout;
    if (0 <= source_ && timeout == kNoTimeout) {
      if (messages_->await(receive, source_, limit)) {
        return Work::await(kNoTimeout);
      }
      giveUp(limit);
      return true;
    }
    if (Work::await(limit)) {
      return true;
    }
    if (!messages_->withdraw(receive)) {
      // It is being received.
      return Work::await(kNoTimeout);
    }
    giveUp(limit);
    return true;
  }

 private:
  // The receive is withdrawn: nobody else calls what it ends with.
  void giveUp(Milliseconds limit) {
    const auto ended = std::exchange(receive->ended, nullptr);
    ended(-1, communicator_->error("recv: Timed out : waited " + std::to_string(limit.count()) +
                                   " ms for a message from " + from_));
  }

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Messages> messages_;
  // -1: any.
  int source_;
  std::string from_;
  Milliseconds limit_;
};

}  // namespace

WorkPtr Backend::send(Tensors& tensors, int target, int tag) {
  auto& tensor = only(tensors, "send");
  checkDense(tensor, "send");
  checkRoot(target, "send");
  TORCH_CHECK(tag >= 0, "send: Tag must be nonnegative, not ", tag);
  TORCH_CHECK(target != rank_, "send: to this rank itself");
  if (tensor.is_cuda()) {
    Calls calls{c10d::OpType::SEND, "paceline:send"};
    auto flat = tensor.contiguous();
    auto made = message(pclCollSend, flat);
    made.sendbuff = flat.const_data_ptr();
    calls.calls = {made};
    calls.kept = {flat, tensor};
    calls.outputs = tensors;
    return noted(devices_.message(std::move(calls), tensor.device(), rank_, target, options_->timeout, sequence_));
  }
  auto flat = tensor.contiguous();
  auto work = c10::make_intrusive<SendWork>(rank_, tensors, sequence_.load(), flat, communicator_, senders_[target]);
  work->begin(messages_->startSend(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes(), target, tag,
                                   options_->timeout, work->header()));
  return noted(work);
}

WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
  checkRoot(source, "recv");
  TORCH_CHECK(tag >= 0, "recv: Tag must be nonnegative, not ", tag);
  TORCH_CHECK(source != rank_, "recv: from this rank itself");
  auto& tensor = only(tensors, "recv");
  checkDense(tensor, "recv");
  if (tensor.is_cuda()) {
    Calls calls{c10d::OpType::RECV, "paceline:recv"};
    auto flat = tensor.contiguous();
    auto made = message(pclCollRecv, flat);
    made.recvbuff = flat.data_ptr();
    calls.calls = {made};
    calls.kept = {flat, tensor};
    calls.outputs = tensors;
    if (!flat.is_same(tensor)) {
      calls.after = [flat, tensor] { tensor.copy_(flat); };
    }
    auto work = devices_.message(std::move(calls), tensor.device(), source, rank_, options_->timeout, sequence_);
    work->setSource(source);
    return noted(work);
  }
  return startReceive(tensors, {source}, tag, c10d::OpType::RECV, "paceline:recv", communicator_->nameOf(source));
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK(tag >= 0, "recv: Tag must be nonnegative, not ", tag);
  auto& tensor = only(tensors, "recv");
  TORCH_CHECK(!tensor.is_cuda(), "recv: from any rank, only into memory of the host: say which rank, or receive there");
  std::vector<int> sources;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      sources.push_back(rank);
    }
  }
  return startReceive(tensors, sources, tag, c10d::OpType::RECVANYSOURCE, "paceline:recvAnySource", "any rank");
}

WorkPtr Backend::startReceive(Tensors& tensors, const std::vector<int>& sources, int tag, c10d::OpType type,
                              const char* title, const std::string& from) {
  auto& tensor = only(tensors, "recv");
  checkDense(tensor, "recv");
  auto flat = tensor.contiguous();
  auto work = c10::make_intrusive<ReceiveWork>(rank_, type, title, tensors, sequence_.load(), communicator_, messages_,
                                               sources.size() == 1 && type == c10d::OpType::RECV ? sources[0] : -1,
                                               from, options_->timeout);
  auto receive = std::make_shared<Receive>();
  receive->tag = static_cast<Tag>(tag);
  receive->data = static_cast<char*>(flat.data_ptr());
  receive->bytes = flat.nbytes();
  // Holds the tensors, and the work, until the message is there.
  receive->ended = [work, flat, tensor](int source, std::exception_ptr error) {
    work->setSource(source);
    work->settle(error, [&] {
      if (!flat.is_same(tensor)) {
        tensor.copy_(flat);
      }
    });
  };
  work->receive = receive;
  messages_->startReceive(receive, sources);
  return noted(work);
}

std::optional<at::Device> Backend::deviceOfBarrier(const c10d::BarrierOptions& opts) const {
  if (!hasCuda() || !devices_.areThere()) {
    return std::nullopt;
  }
  if (!opts.device_ids.empty()) {
    return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]));
  }
  return boundDevice_;
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  Calls calls{c10d::OpType::BARRIER, "paceline:barrier"};
  calls.calls = {call(pclCollBarrier)};
  if (const auto device = deviceOfBarrier(opts)) {
    auto work = devices_.launch(std::move(calls), *device, timeoutOf(opts.timeout), ++sequence_);
    work->waitsOnHost = true;
    if (!opts.asyncOp) {
      work->wait();
    }
    return noted(work);
  }
  return launch(std::move(calls), opts.timeout, opts.asyncOp);
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) {
  const auto timeout = timeoutOf(opts.timeout);
  const auto turn = ++monitored_;
  const auto begin = std::chrono::steady_clock::now();
  const auto left = [&] {
    const auto now = std::chrono::steady_clock::now();
    return std::max(Milliseconds(0), timeout - std::chrono::duration_cast<Milliseconds>(now - begin));
  };
  // A message of no bytes; false, or why not, when it does not come.
  const auto hears = [&](int source, Tag tag, std::string& why) {
    auto receive = std::make_shared<Receive>();
    receive->tag = tag | turn;

    try {
      // By the source's thread, which goes on waiting where the message is late.
      auto ended = std::make_shared<std::promise<void>>();
      auto future = ended->get_future();
      receive->ended = [ended](int, std::exception_ptr error) {
        if (error) {
          ended->set_exception(error);
        } else {
          ended->set_value();
        }
      };
      messages_->startReceive(receive, {source});
      if (future.wait_for(left()) != std::future_status::ready && messages_->withdraw(receive)) {
        why = "no message within " + std::to_string(timeout.count()) + " ms";
        return false;
      }
      future.get();
      return true;
    } catch (const std::exception& error) {
      why = error.what();
      return false;
    }
  };
  const auto raise = [&](const std::string& text) { std::rethrow_exception(communicator_->error(text)); };
  std::string why;
  if (rank_ != 0) {
    try {
      messages_->send(nullptr, 0, 0, MONITORED | turn, std::max(left(), Milliseconds(1)));
    } catch (const std::exception& error) {
      why = error.what();
    }
    // Rank 0 takes as long as the last rank may, and says then what it has found.
    if (!why.empty() || !hears(0, ACKNOWLEDGED, why)) {
      raise("Rank " + std::to_string(rank_) +
            " successfully reached monitoredBarrier, but received errors while waiting for " +
            "send/recv from rank 0. Please check rank 0 logs for faulty rank. " + why);
    }
    return;
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    if (left().count() == 0 && missing.empty()) {
      raise("Rank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) +
            " ms; no response yet from " + communicator_->nameOf(rank));
    }
    if (hears(rank, MONITORED, why)) {
      continue;
    }
    missing.push_back(rank);
    if (!waitAllRanks) {
      break;
    }
  }
  if (!missing.empty()) {
    std::ostringstream text;
    text << (missing.size() == 1 ? "Rank " : "Ranks ");
    for (size_t i = 0; i < missing.size(); ++i) {
      text << (i == 0 ? "" : ", ") << ranksInJob().at(missing[i]);
    }
    text << " failed to pass monitoredBarrier in " << timeout.count() << " ms: " << why;
    raise(text.str());
  }
  for (int rank = 1; rank < size_; ++rank) {
    messages_->send(nullptr, 0, rank, ACKNOWLEDGED | turn, std::max(left(), Milliseconds(1000)));
  }
}

}  // namespace paceline
