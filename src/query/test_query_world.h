// A small process for tests of the read path: a model on plain levels that can be made to fail, a
// session factory on an executor that the test steps, and sessions on it.
//
// Rows are stamped with (table number of the test, key, version). For one thread, unless the test
// brings executors with threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "query/session_factory.h"
#include "serving/live_model.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/observed_tables.h"
#include "testing/fakes/plain_tier.h"
#include "testing/fakes/stamped_row.h"
#include "testing/faults/fault_tier.h"

namespace hps {

// Cuts small batches into pieces and calls helpers for them, as the defaults do with large ones.
inline constexpr StagedFetchTuning kTinyPieces = {.piece_bytes = 100,
                                                  .copy_ahead_bytes_min = 200,
                                                  .bring_bytes_max = 400,
                                                  .send_bytes = 300,
                                                  .alone_max = Duration::zero(),
                                                  .helper_share = Duration(1)};

// One incarnation of a table, and the handles by which a test reaches into its levels.
struct WorldTable {
  std::shared_ptr<LiveTable> served;
  SharedTableLog l3_log = std::make_shared<TableLog>();
  SharedTableLog l2_log = std::make_shared<TableLog>();
  std::unique_ptr<TierFaults> l3_faults;
  std::unique_ptr<TierFaults> l2_faults;
  // Of the second part of L2.
  SharedTableLog second_log = std::make_shared<TableLog>();
  std::unique_ptr<TierFaults> second_faults;
  LossyTable* second = nullptr;
  DurableTable* l3 = nullptr;  // below faults and observation
  LossyTable* l2 = nullptr;
};

struct WorldTableOptions {
  std::string name = "m/a";
  uint64_t stamp = 1;
  Incarnation incarnation = 1;
  uint32_t dim = 8;
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::byte> default_row{};
  bool has_l2 = true;
  bool l2_blocks = false;
  LossyTier* l2_tier = nullptr;  // asks level 2 for several tables at once
  bool has_second = false;       // level 2 has a second part, which can block
  LossyTier* second_tier = nullptr;
  double hit_rate_threshold = 1.0;
  std::vector<Key> keys{};  // rows in L3, of version 0
  std::set<Key> lost_keys{};
};

inline std::vector<std::byte> Stamped(uint64_t stamp, Key key, Version version, size_t row_bytes) {
  std::vector<std::byte> row(row_bytes);
  StampedRow::Write(stamp, key, version, row);
  return row;
}

// Rows of one version, as a batch; the object owns what the batch borrows.
class StampedQuery {
 public:
  StampedQuery(uint64_t stamp, std::vector<Key> keys, Version version, size_t row_bytes)
      : keys_(std::move(keys)),
        versions_(keys_.size(), version),
        rows_(keys_.size() * row_bytes),
        row_bytes_(row_bytes) {
    for (size_t i = 0; i < keys_.size(); ++i)
      StampedRow::Write(stamp, keys_[i], version, {rows_.data() + i * row_bytes, row_bytes});
  }
  RowBatch batch() {
    return {.keys = keys_,
            .rows = {.data = rows_.data(),
                     .row_count = keys_.size(),
                     .row_bytes = row_bytes_,
                     .stride_bytes = row_bytes_},
            .versions = versions_};
  }

 private:
  const std::vector<Key> keys_;
  const std::vector<Version> versions_;
  std::vector<std::byte> rows_;
  const size_t row_bytes_;
};

// With `l2`, the table is made with this one instead of a plain one.
inline WorldTable MakeWorldTable(const WorldTableOptions& options, Executor* executor,
                                 std::unique_ptr<LossyTable> l2 = nullptr) {
  WorldTable table;
  table.l3_faults = std::make_unique<TierFaults>(executor);
  table.l2_faults = std::make_unique<TierFaults>(executor);
  table.second_faults = std::make_unique<TierFaults>(executor);
  table.second_faults->set_can_block(true);
  const TableSpec spec{.name = options.name,
                       .dim = options.dim,
                       .dtype = options.dtype,
                       .default_row = options.default_row};
  auto l3 = std::make_unique<PlainDurableTable>(spec, options.incarnation);
  table.l3 = l3.get();
  StampedQuery rows(options.stamp, options.keys, 0, spec.row_bytes());
  EXPECT_TRUE(l3->Write({.upserts = rows.batch()}).ok());
  LiveTable::Parts parts;
  parts.l3 = WithFaults(
      std::make_unique<ObservedDurableTable>(std::move(l3), table.l3_log, options.lost_keys),
      table.l3_faults.get());
  if (options.has_l2) {
    if (l2 == nullptr) l2 = std::make_unique<PlainLossyTable>();
    table.l2 = l2.get();
    if (options.l2_blocks) table.l2_faults->set_can_block(true);
    parts.l2.push_back(
        {.table = WithFaults(std::make_unique<ObservedLossyTable>(std::move(l2), table.l2_log),
                             table.l2_faults.get()),
         .tier = options.l2_tier});
  }
  if (options.has_second) {
    auto second = std::make_unique<PlainLossyTable>();
    table.second = second.get();
    parts.l2.push_back({.table = WithFaults(std::make_unique<ObservedLossyTable>(std::move(second),
                                                                                 table.second_log),
                                            table.second_faults.get()),
                        .tier = options.second_tier});
  }
  parts.hit_rate_threshold = options.hit_rate_threshold;
  table.served = std::make_shared<LiveTable>(std::move(parts));
  return table;
}

// What one lookup of one table gave.
struct WorldAnswer {
  absl::Status status;
  LookupCounts counts;
  std::vector<KeyStatus> statuses;
  std::vector<std::byte> rows;
  size_t row_bytes = 0;

  std::span<const std::byte> row(size_t i) const {
    return std::span(rows).subspan(i * row_bytes, row_bytes);
  }
};

class World {
 public:
  struct Options {
    size_t scratch_count = 64;
    size_t queue_max = 1024;
    Duration timeout = std::chrono::seconds(1);
    StagedFetchTuning tuning{};
  };
  explicit World(uint64_t seed = 0, std::vector<DeviceCache*> caches = {})
      : World(seed, std::move(caches), Options()) {}
  World(uint64_t seed, std::vector<DeviceCache*> caches, const Options& world)
      : executor_(seed, world.queue_max) {
    SessionFactory::Options options;
    options.fetch_executor = &executor_;
    options.promote_executor = &executor_;
    options.caches = std::move(caches);
    options.scratch_count = world.scratch_count;
    options.timeout = world.timeout;
    options.helper_spin = Duration::zero();  // a stepped helper would wait for its own stepper
    options.tuning = world.tuning;
    factory_ = *SessionFactory::Create(options);
    model_ = std::make_unique<LiveModel>("m", factory_->epoch_domain(), executor_);
  }
  ~World() {
    executor_.Hold(false);
    executor_.RunAll();
  }

  void Publish(const std::vector<const WorldTable*>& tables) {
    std::vector<std::shared_ptr<LiveTable>> served;
    for (const WorldTable* table : tables) served.push_back(table->served);
    ASSERT_TRUE(model_->Publish(std::move(served)).ok());
  }

  std::unique_ptr<LookupSession> NewSession(const SessionOptions& options = {}) {
    auto session = factory_->NewSession(*model_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  ManualExecutor& executor() { return executor_; }
  SessionFactory& factory() { return *factory_; }
  LiveModel& model() { return *model_; }
  StoreStatistics statistics() const {
    StoreStatistics statistics{.tables = model_->Statistics()};
    factory_->AddStatistics(&statistics);
    return statistics;
  }

 private:
  ManualExecutor executor_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> model_;
};

// Looks `keys` of one table up. The rows are filled with 0xcc first, so that what is not written
// shows.
inline WorldAnswer Ask(LookupSession& session, std::vector<Key> keys, uint32_t table = 0,
                       HostLookupRequest request = {}) {
  WorldAnswer answer;
  answer.row_bytes = session.output_row_bytes({table});
  answer.rows.assign(keys.size() * answer.row_bytes, std::byte{0xcc});
  answer.statuses.assign(keys.size(), KeyStatus{0xcc});
  const HostTableQuery query{
      .table = {table}, .keys = keys, .rows = answer.rows, .status = answer.statuses};
  request.queries = {&query, 1};
  answer.status = session.Lookup(request, &answer.counts);
  return answer;
}

// Looks keys of the first table up, whose rows have 32 bytes, for a caller who wants them on the
// device.
inline absl::Status AskOnDevice(LookupSession& session, const std::vector<Key>& keys,
                                std::optional<Duration> timeout = {}, Stream stream = {}) {
  std::vector<std::byte> rows(keys.size() * 32);
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()}};
  return session.Lookup(
      DeviceLookupRequest{.queries = {&query, 1}, .timeout = timeout, .stream = stream}, nullptr);
}

}  // namespace hps
