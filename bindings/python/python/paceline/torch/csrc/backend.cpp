#include "backend.h"

#include <Python.h>

namespace paceline {

namespace {

// Threads that are joined may want the interpreter's lock, for callbacks of futures.
struct WithoutInterpreter {
  PyThreadState* state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  ~WithoutInterpreter() {
    if (state != nullptr) {
      PyEval_RestoreThread(state);
    }
  }
};

const char* const NAME = "paceline";

}  // namespace

Backend::Backend(Membership membership)
    : c10d::Backend(membership.rank, membership.size),
      membership_(membership),
      options_(c10::make_intrusive<Options>(NAME, membership.timeout)),
      communicator_(std::make_shared<Communicator>(membership, "paceline")),
      reaper_(std::make_shared<Reaper>()),
      messages_(std::make_shared<Messages>(communicator_)),
      devices_(membership) {
  for (int rank = 0; rank < size_; ++rank) {
    senders_.push_back(std::make_shared<Reaper>());
  }
  options_->group_name = membership.name;
  options_->global_ranks_in_group.assign(membership.globalRanks.begin(), membership.globalRanks.end());
  init();
}

Backend::~Backend() {
  close();
}

const std::string Backend::getBackendName() const {
  return NAME;
}

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  return options_;
}

void Backend::setTimeout(Milliseconds timeout) {
  options_->timeout = timeout;
  membership_.timeout = timeout;
  communicator_->setTimeout(timeout);
  devices_.setTimeout(timeout);
}

uint64_t Backend::getSequenceNumberForGroup() {
  return sequence_;
}

c10d::ErrorType Backend::getError() {
  const auto onHost = communicator_->health();
  switch (onHost == pclSuccess ? devices_.health() : onHost) {
    case pclSuccess:
      return c10d::ErrorType::SUCCESS;
    case pclTimeout:
      return c10d::ErrorType::TIMEOUT;
    case pclRemoteError:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

bool Backend::supportsSplitting() const {
  return true;
}

std::vector<int64_t> Backend::ranksInJob() const {
  auto ranks = membership_.globalRanks;
  for (int rank = static_cast<int>(ranks.size()); rank < size_; ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) {
    return nullptr;
  }
  Membership part;
  // Waiting holds a connection up, and the parent may be using this one.
  part.store = store->clone();
  part.rank = static_cast<int>(mine - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.timeout = opts ? opts->timeout : options_->timeout;
  part.name = opts ? opts->group_name : "";
  const auto inJob = ranksInJob();
  for (const auto rank : ranks) {
    part.globalRanks.push_back(inJob.at(rank));
  }
  return c10::make_intrusive<Backend>(std::move(part));
}

void Backend::abort() {
  const std::string reason = "abort() of the process group was called";
  communicator_->revoke(reason);
  if (staged_) {
    staged_->revoke(reason);
  }
  devices_.revoke(reason);
}

void Backend::shutdown() {
  {
    WithoutInterpreter free;
    devices_.drain();
  }
  close();
}

void Backend::close() {
  WithoutInterpreter free;
  devices_.close();
  communicator_->close();
  messages_->stop();
  if (stagedReaper_) {
    stagedReaper_->stop();
  }
  if (staged_) {
    staged_->close();
  }
  reaper_->stop();
  for (const auto& sender : senders_) {
    sender->stop();
  }
}

Milliseconds Backend::timeoutOf(Milliseconds given) const {
  return given == c10d::kUnsetTimeout ? options_->timeout : given;
}

void Backend::checkRoot(int64_t root, const char* call) const {
  TORCH_CHECK(root >= 0 && root < size_, call, ": invalid root rank: ", root, ", the group has ", size_);
}

pclCall_t Backend::call(pclCollective_t collective) const {
  pclCall_t call = PCL_CALL_INITIALIZER;
  call.collective = collective;
  return call;
}

pclCall_t Backend::moving(pclCollective_t collective, at::ScalarType type, size_t count) const {
  const auto how = moved(type);
  auto made = call(collective);
  made.datatype = how.type;
  made.count = count * how.units;
  return made;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  checkDevice(device, "init_process_group");
  if (device.is_cuda()) {
    boundDevice_ = device;
    devices_.connect(device);
  }
}

void Backend::startCoalescing() {
  std::lock_guard<std::mutex> lock(coalescing_);
  coalesced_.emplace();
}

WorkPtr Backend::endCoalescing() {
  std::lock_guard<std::mutex> lock(coalescing_);
  auto works = std::exchange(coalesced_, std::nullopt).value_or(std::vector<WorkPtr>());
  if (works.size() == 1) {
    return works[0];
  }
  return c10::make_intrusive<JointWork>(rank_, std::move(works), sequence_);
}

WorkPtr Backend::noted(WorkPtr work) {
  std::lock_guard<std::mutex> lock(coalescing_);
  if (coalesced_) {
    coalesced_->push_back(work);
  }
  return work;
}

WorkPtr Backend::launch(Calls calls, Milliseconds given, bool isAsync) {
  const auto timeout = timeoutOf(given);
  const auto device = deviceOf(calls);
  if (device.is_cpu()) {
    return noted(launchOnHost(std::move(calls), timeout, isAsync));
  }
  return noted(devices_.launch(std::move(calls), device, timeout, ++sequence_));
}

WorkPtr Backend::launchOnHost(Calls calls, Milliseconds timeout, bool isAsync) {
  const auto& functions = library();
  const auto sequence = ++sequence_;
  const auto handle = communicator_->handle();
  const char* name = calls.name();
  pclWork_t started = nullptr;
  pclResult_t result = pclSuccess;
  const Operators operators(calls, *communicator_);
  // Profilers want to see the time that it takes.
  c10::intrusive_ptr<Work> done;
  if (calls.calls.size() == 1) {
    auto& call = calls.calls[0];
    call.timeoutMs = static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 1));
    if (isAsync) {
      result = functions.pclStart(&call, handle, nullptr, &started);
    } else {
      done = c10::make_intrusive<Work>(rank_, calls.type, calls.title, std::move(calls.outputs), sequence);
      result = functions.pclRun(&call, handle, nullptr);
    }
  } else {
    result = functions.pclGroupStart();
    for (auto& call : calls.calls) {
      if (result == pclSuccess) {
        result = functions.pclRun(&call, handle, nullptr);
      }
    }
    const auto ended = isAsync ? functions.pclGroupEndStart(&started) : functions.pclGroupEnd();
    result = result == pclSuccess ? ended : result;
  }
  communicator_->check(result, name);
  if (!isAsync) {
    if (!done) {
      done = c10::make_intrusive<Work>(rank_, calls.type, calls.title, std::move(calls.outputs), sequence);
    }
    done->settle(nullptr, calls.after);
    return done;
  }
  auto running = std::make_shared<Running>();
  running->communicator = communicator_;
  running->name = name;
  running->handle = started;
  running->kept = std::move(calls.kept);
  running->after = std::move(calls.after);
  return c10::make_intrusive<CallWork>(rank_, calls.type, calls.title, std::move(calls.outputs), sequence,
                                       std::move(running), reaper_);
}

}  // namespace paceline
