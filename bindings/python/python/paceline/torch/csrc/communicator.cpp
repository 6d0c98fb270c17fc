#include "communicator.h"

#include <cstring>
#include <sstream>

#include <c10/util/Exception.h>

namespace paceline {

namespace {

std::exception_ptr distError(const std::string& text) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

// What rank 0 puts into the store when it can't open a place to meet; a unique id is longer.
const std::string FAILED = "failed: ";

}  // namespace

Communicator::Communicator(Membership membership, const std::string& key, Attachment attachment)
    : membership_(std::move(membership)) {
  const auto& functions = library();
  pclUniqueId id;
  std::memset(&id, 0, sizeof(id));
  if (membership_.rank == 0) {
    const auto result = functions.pclGetUniqueId(&id);
    if (result != pclSuccess) {
      const std::string text = functions.pclGetLastError(nullptr);
      if (membership_.size > 1) {
        const auto message = FAILED + text;
        membership_.store->set(key, std::vector<uint8_t>(message.begin(), message.end()));
      }
      std::rethrow_exception(distError(text));
    }
    if (membership_.size > 1) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(id.internal);
      membership_.store->set(key, std::vector<uint8_t>(bytes, bytes + sizeof(id.internal)));
    }
  } else {
    membership_.store->wait({key}, membership_.timeout);
    const auto bytes = membership_.store->get(key);
    if (bytes.size() != sizeof(id.internal)) {
      std::rethrow_exception(
          distError("rank 0 has opened no place to meet: " + std::string(bytes.begin(), bytes.end())));
    }
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  pclConfig_t config = PCL_CONFIG_INITIALIZER;
  const auto name = membership_.name.empty() ? "" : "group " + membership_.name;
  config.name = name.c_str();
  config.timeoutMs = static_cast<uint64_t>(membership_.timeout.count());
  config.initTimeoutMs = config.timeoutMs;
  config.device = attachment.device;
  config.deviceScratchBytes = attachment.scratchBytes;
  pclComm_t made = nullptr;
  const auto result = functions.pclCommInitRankConfig(&made, membership_.size, id, membership_.rank, &config);
  if (result != pclSuccess) {
    std::rethrow_exception(error(result, "joining"));
  }
  handle_ = made;
  if (membership_.rank == 0 && membership_.size > 1) {
    // All have joined, so all have read it. The next group of this name, made when this one is gone, must not find it.
    try {
      membership_.store->deleteKey(key);
    } catch (const std::exception&) {
      // Some stores can't: names are used once there.
    }
  }
}

Communicator::~Communicator() {
  close();
}

void Communicator::close() {
  if (auto* handle = handle_.exchange(nullptr)) {
    library().pclCommDestroy(handle);
  }
}

void Communicator::revoke(const std::string& reason) {
  if (auto* handle = handle_.load()) {
    library().pclCommRevoke(handle, reason.c_str());
  }
}

void Communicator::setTimeout(Milliseconds timeout) {
  membership_.timeout = timeout;
  library().pclCommSetTimeout(handle_, static_cast<uint64_t>(timeout.count()));
}

pclResult_t Communicator::health() const {
  auto state = pclSuccess;
  const auto asked = library().pclCommGetAsyncError(handle_, &state);
  return asked == pclSuccess ? state : asked;
}

std::string Communicator::nameOf(int rank) const {
  const auto& ranks = membership_.globalRanks;
  const auto at = static_cast<size_t>(rank);
  std::string name = "rank " + std::to_string(rank);
  if (at < ranks.size() && ranks[at] != rank) {
    name += " (rank " + std::to_string(ranks[at]) + " of the job)";
  }
  return name;
}

std::exception_ptr Communicator::error(pclResult_t result, const char* what) const {
  const auto& functions = library();
  std::string text = functions.pclGetLastError(nullptr);
  if (text.empty()) {
    text = functions.pclGetLastError(handle_);
  }
  std::ostringstream message;
  message << what << ": " << (result == pclTimeout ? "Timed out in the call: " : "")
          << (text.empty() ? functions.pclGetErrorString(result) : text.c_str());
  // The text counts in ranks of the group, which may have others in the job.
  std::vector<int> peers(membership_.size);
  size_t count = 0;
  auto last = pclSuccess;
  if (!membership_.globalRanks.empty() &&
      functions.pclGetLastErrorPeers(nullptr, &last, peers.data(), peers.size(), &count) == pclSuccess) {
    bool isFirst = true;
    for (size_t i = 0; i < std::min(count, peers.size()); ++i) {
      const auto at = static_cast<size_t>(peers[i]);
      if (at < membership_.globalRanks.size() && membership_.globalRanks[at] != peers[i]) {
        message << (isFirst ? "; in the job: " : ", ") << "rank " << peers[i] << " is rank "
                << membership_.globalRanks[at];
        isFirst = false;
      }
    }
  }
  return distError(message.str());
}

std::exception_ptr Communicator::error(const std::string& text) const {
  return distError(text);
}

void Communicator::check(pclResult_t result, const char* what) const {
  if (result != pclSuccess) {
    std::rethrow_exception(error(result, what));
  }
}

}  // namespace paceline
