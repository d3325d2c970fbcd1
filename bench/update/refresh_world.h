// A table whose level 1 is refreshed: all rows in level 2, those that change also in level 3, and
// an applier with helpers, composed as a store composes them. For the scenario "refresh".
//
// For one thread, but a session may be used by another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/fork_join_team.h"
#include "hps/lookup_session.h"
#include "query/session_factory.h"
#include "serving/model_registry.h"
#include "tier/device_cache.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"
#include "update/table_applier.h"

namespace hps::bench {

class RefreshWorld {
 public:
  static constexpr uint32_t kDim = 128;
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  struct Setting {
    std::string directory;         // made and removed
    uint64_t rows = 0;             // of the table: keys 0 to rows - 1
    uint64_t changed = 0;          // of them, the first ones change and are in level 3
    DeviceCache* cache = nullptr;  // null: a StagingTable is level 1
  };
  // Errors: those of the levels. REQUIRES: changed <= rows.
  static absl::StatusOr<std::unique_ptr<RefreshWorld>> Create(const Setting& setting);
  ~RefreshWorld();
  RefreshWorld(const RefreshWorld&) = delete;
  RefreshWorld& operator=(const RefreshWorld&) = delete;

  // Gives all rows that change a new value in levels 3 and 2: the first float of a row is `value`.
  // Level 1 is behind after this.
  absl::Status Change(float value);
  // Level 2 has no rows any more.
  absl::Status ClearLevel2() { return table_->l2()[0].table().Clear(); }

  // The keys that change, in the order in which they were changed: a random one.
  const std::vector<Key>& changed_keys() const { return changed_keys_; }
  TableApplier& applier() { return *applier_; }
  LiveTable& table() { return *table_; }
  LookupSession& session() { return *session_; }  // with a cache only
  // Threads of a refresh, the caller included.
  size_t refresh_threads() const { return helpers_ + 1; }

 private:
  explicit RefreshWorld(const Setting& setting) : setting_(setting) {}
  absl::Status MakeStore();
  absl::Status MakeTable();
  absl::Status Serve();
  absl::Status Insert(Key first, size_t count);
  std::span<std::byte> RowsOf(size_t count, float value);

  const Setting setting_;
  size_t helpers_ = 0;
  std::vector<Key> changed_keys_;
  std::vector<std::byte> rows_;
  uint64_t offset_ = 0;  // of the stream
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<ModelRegistry> registry_;
  std::shared_ptr<LiveTable> table_;
  std::unique_ptr<ForkJoinPool> teams_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::unique_ptr<TableApplier> applier_;
  std::unique_ptr<LookupSession> session_;
};

}  // namespace hps::bench
