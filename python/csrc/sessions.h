// The sessions behind one hps.Session of Python: one for each thread that asks, so that versions
// never go back for a thread. Thread-safe; nothing here needs the GIL.
//
// Operators of frameworks run without the GIL and find their sessions here by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "hps/lookup_session.h"
#include "hps/store.h"

namespace hps::python {

class ThreadSessions {
 public:
  // Makes the calling thread's session. Errors: those of Store::NewSession.
  static absl::StatusOr<std::unique_ptr<ThreadSessions>> Make(std::shared_ptr<Store> store,
                                                              std::string model,
                                                              const SessionOptions& options);

  const std::vector<TableSpec>& tables() const { return tables_; }
  const SessionOptions& options() const { return options_; }

  // The number of forks before these sessions were made: in a forked child they are of no use.
  uint64_t fork_count() const { return fork_count_; }

  // The session of `thread`, until Return.
  absl::StatusOr<std::unique_ptr<LookupSession>> Take(uint64_t thread);
  void Return(uint64_t thread, std::unique_ptr<LookupSession> session);

  // One lookup by the session of `thread`.
  template <MemorySpace kSpace>
  absl::Status Lookup(const LookupRequest<kSpace>& request, uint64_t thread) {
    absl::StatusOr<std::unique_ptr<LookupSession>> session = Take(thread);
    if (!session.ok()) return session.status();
    const absl::Status done = (*session)->Lookup(request, nullptr);
    Return(thread, *std::move(session));
    return done;
  }

 private:
  struct Idle {
    uint64_t thread = 0;
    std::unique_ptr<LookupSession> session;
  };

  ThreadSessions(std::shared_ptr<Store> store, std::string model, const SessionOptions& options);

  const std::shared_ptr<Store> store_;
  const std::string model_;
  const SessionOptions options_;
  const uint64_t fork_count_;
  std::vector<TableSpec> tables_;
  Mutex mutex_;
  std::vector<Idle> idle_ HPS_GUARDED_BY(mutex_);  // the one that was used last is the last
};

// Makes the sessions known by `name`, for as long as somebody else owns them.
void PublishSessions(const std::string& name, const std::shared_ptr<ThreadSessions>& sessions);

// Null if no open session has the name.
std::shared_ptr<ThreadSessions> FindSessions(const std::string& name);

}  // namespace hps::python
