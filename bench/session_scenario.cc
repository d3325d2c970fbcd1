// What a session costs over its levels: 26 tables in one call, every row in level 2 in memory,
// against the 26 fetches alone; and with a part on Redis behind the memory, against the session
// without. With a device: see session_device.h.
#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/redis/unused_redis.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/session_device.h"
#include "l2_memory/memory_tier.h"
#include "query/session_factory.h"
#include "testing/fakes/plain_tier.h"

namespace hps::bench {
namespace {

constexpr uint32_t kTables = 26;
constexpr size_t kKeysPerTable = 1024;
constexpr size_t kKeySets =
    8;  // in rotation, so that no call finds the rows of the last one cached

struct Sizes {
  size_t rows_per_table = 0;
  size_t runs = 0;
};

// A model whose rows are all in memory. Redis, if the model has it, and level 3 are empty and never
// asked.
class Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Create(uint32_t dim, const Sizes& sizes,
                                                       bool has_redis = false) {
    auto model = std::unique_ptr<Model>(new Model);
    if (has_redis) {
      HPS_ASSIGN_OR_RETURN(model->redis_, MakeUnusedRedis());
    }
    HPS_ASSIGN_OR_RETURN(model->fetch_, WorkerPool::Create({.name = "fetch"}));
    HPS_ASSIGN_OR_RETURN(model->promote_, WorkerPool::Create({.name = "promote"}));
    HPS_ASSIGN_OR_RETURN(model->factory_,
                         SessionFactory::Create({.fetch_executor = model->fetch_.get(),
                                                 .promote_executor = model->promote_.get()}));
    model->state_ =
        std::make_unique<LiveModel>("m", model->factory_->epoch_domain(), *model->promote_);
    std::vector<std::shared_ptr<LiveTable>> tables;
    for (uint32_t t = 0; t < kTables; ++t) {
      HPS_ASSIGN_OR_RETURN(auto table, model->MakeTable(t, dim, sizes.rows_per_table));
      tables.push_back(std::move(table));
    }
    HPS_RETURN_IF_ERROR(model->state_->Publish(tables));
    model->tables_ = std::move(tables);
    HPS_ASSIGN_OR_RETURN(model->session_, model->factory_->NewSession(*model->state_, {}));
    return model;
  }
  ~Model() {
    session_.reset();
    fetch_.reset();
    promote_.reset();
  }

  LookupSession& session() { return *session_; }
  LossyTable& l2(uint32_t table) { return tables_[table]->l2()[0].table(); }

 private:
  Model() = default;

  absl::StatusOr<std::shared_ptr<LiveTable>> MakeTable(uint32_t number, uint32_t dim,
                                                       size_t row_count) {
    const TableSpec spec{.name = absl::StrCat("m/t", number), .dim = dim};
    const size_t row_bytes = spec.row_bytes();
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<PlainDurableTable>(spec);
    // A quarter to spare, so that no partition is too small for its share of the keys.
    const size_t capacity = row_count + row_count / 4;
    HPS_ASSIGN_OR_RETURN(
        std::unique_ptr<LossyTable> l2,
        tier_->OpenTable(spec, 1, MemoryTierBytesFor(capacity, row_bytes, options_)));
    std::vector<Key> keys(kKeysPerTable);
    std::vector<std::byte> rows(kKeysPerTable * row_bytes, std::byte{1});
    for (size_t first = 0; first < row_count; first += keys.size()) {
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(first + i);
      const RowBatch batch{.keys = keys,
                           .rows = {.data = rows.data(),
                                    .row_count = keys.size(),
                                    .row_bytes = row_bytes,
                                    .stride_bytes = row_bytes}};
      HPS_RETURN_IF_ERROR(l2->Insert(batch, 0).status());
    }
    parts.l2.push_back({.table = std::move(l2)});
    HPS_RETURN_IF_ERROR(AddUnusedPart(redis_, spec, &parts));
    return std::make_shared<LiveTable>(std::move(parts));
  }

  const MemoryTierOptions options_{};
  const std::unique_ptr<LossyTier> tier_ = MakeMemoryTier(options_);
  RedisTier redis_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> state_;
  std::vector<std::shared_ptr<LiveTable>> tables_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::unique_ptr<LookupSession> session_;
};

// The keys of all calls, and the buffers that both ways of asking write to.
struct Buffers {
  Buffers(uint32_t dim, size_t rows_per_table) : row_bytes(dim * sizeof(float)) {
    std::mt19937_64 random(1);
    for (auto& set : keys) {
      set.resize(kTables * kKeysPerTable);
      for (Key& key : set) key = static_cast<Key>(random() % rows_per_table);
    }
    rows.resize(kTables * kKeysPerTable * row_bytes);
    statuses.resize(kTables * kKeysPerTable);
    outcomes.resize(kKeysPerTable);
  }
  std::span<const Key> KeysOf(size_t set, uint32_t table) const {
    return std::span(keys[set % kKeySets]).subspan(table * kKeysPerTable, kKeysPerTable);
  }
  std::span<std::byte> RowsOf(uint32_t table) {
    const size_t bytes = kKeysPerTable * row_bytes;
    return std::span(rows).subspan(table * bytes, bytes);
  }

  const size_t row_bytes;
  std::array<std::vector<Key>, kKeySets> keys;
  std::vector<std::byte> rows;
  std::vector<KeyStatus> statuses;
  std::vector<FetchOutcome> outcomes;
};

// One call of the session, in us.
absl::StatusOr<double> TimeCall(Model& model, Buffers& buffers, size_t set) {
  std::array<HostTableQuery, kTables> queries;
  for (uint32_t t = 0; t < kTables; ++t) {
    queries[t] = {.table = {t},
                  .keys = buffers.KeysOf(set, t),
                  .rows = buffers.RowsOf(t),
                  .status = std::span(buffers.statuses).subspan(t * kKeysPerTable, kKeysPerTable)};
  }
  LookupCounts counts;
  const Stopwatch watch;
  const absl::Status status = model.session().Lookup({.queries = queries}, &counts);
  const double us = watch.us();
  HPS_RETURN_IF_ERROR(status);
  if (counts[KeyStatus::kHitL2] != kTables * kKeysPerTable)
    return absl::InternalError("bench session: a key was not in level 2");
  return us;
}

// The bound: the same fetches, one table after another, without a session.
absl::StatusOr<double> TimeFetches(Model& model, Buffers& buffers, size_t set) {
  const Stopwatch watch;
  for (uint32_t t = 0; t < kTables; ++t) {
    const FetchBatch batch{.keys = buffers.KeysOf(set, t),
                           .rows = {.data = buffers.RowsOf(t).data(),
                                    .row_count = kKeysPerTable,
                                    .row_bytes = buffers.row_bytes,
                                    .stride_bytes = buffers.row_bytes},
                           .outcomes = buffers.outcomes};
    HPS_RETURN_IF_ERROR(model.l2(t).Fetch(batch, kNoDeadline).status());
  }
  return watch.us();
}

absl::StatusOr<Result> Measure(uint32_t dim, const Sizes& sizes) {
  HPS_ASSIGN_OR_RETURN(const auto model, Model::Create(dim, sizes));
  Buffers buffers(dim, sizes.rows_per_table);
  std::vector<double> calls_us;
  std::vector<double> fetches_us;
  const size_t warm_up_runs = sizes.runs / 10 + 1;
  for (size_t run = 0; run < warm_up_runs + sizes.runs; ++run) {
    // The two take turns, and turns at going first; neither gets the keys that the other just had.
    double call_us = 0;
    double fetch_us = 0;
    for (const bool call : {run % 2 == 0, run % 2 != 0}) {
      if (call) {
        HPS_ASSIGN_OR_RETURN(call_us, TimeCall(*model, buffers, 2 * run));
      } else {
        HPS_ASSIGN_OR_RETURN(fetch_us, TimeFetches(*model, buffers, 2 * run + 5));
      }
    }
    if (run < warm_up_runs) continue;
    calls_us.push_back(call_us);
    fetches_us.push_back(fetch_us);
  }
  Result result{.name = "lookup", .unit = "us", .target = "<= 1.15", .runs = sizes.runs};
  result.params = {{"dim", absl::StrCat(dim)},
                   {"tables", absl::StrCat(kTables)},
                   {"keys_per_table", absl::StrCat(kKeysPerTable)},
                   {"rows_per_table", absl::StrCat(sizes.rows_per_table)}};
  result.figure = Median(calls_us);
  result.bound = Median(fetches_us);
  result.ratio = result.figure / *result.bound;
  result.p50 = result.figure;
  result.p99 = Quantile(calls_us, 0.99);
  return result;
}

// Lookups of a session whose level 2 is memory and then Redis, beside one with memory alone.
absl::StatusOr<Result> MeasureTwoParts(uint32_t dim, const Sizes& sizes) {
  auto both = Model::Create(dim, sizes, /*has_redis=*/true);
  if (absl::IsUnimplemented(both.status()))
    return SkippedResult("lookup_memory_redis", "us", std::string(both.status().message()));
  HPS_RETURN_IF_ERROR(both.status());
  HPS_ASSIGN_OR_RETURN(const auto memory, Model::Create(dim, sizes));
  Buffers buffers(dim, sizes.rows_per_table);
  std::vector<double> both_us, memory_us;
  const size_t warm_up_runs = sizes.runs / 10 + 1;
  for (size_t run = 0; run < warm_up_runs + sizes.runs; ++run) {
    for (const bool with_redis : {run % 2 == 0, run % 2 != 0}) {
      HPS_ASSIGN_OR_RETURN(const double us, TimeCall(with_redis ? **both : *memory, buffers, run));
      if (run >= warm_up_runs) (with_redis ? both_us : memory_us).push_back(us);
    }
  }
  Result result = MakeResult("lookup_memory_redis", "us", Median(both_us), Median(memory_us));
  result.params = {{"dim", absl::StrCat(dim)},
                   {"tables", absl::StrCat(kTables)},
                   {"keys_per_table", absl::StrCat(kKeysPerTable)},
                   {"rows_per_table", absl::StrCat(sizes.rows_per_table)}};
  result.target = "<= 1.05";
  result.p50 = result.figure;
  result.p99 = Quantile(both_us, 0.99);
  result.runs = sizes.runs;
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunSessionScenario(const Options& options) {
  if (options.device >= 0) return RunSessionOnDevice(options);
  const Sizes sizes = options.quick ? Sizes{.rows_per_table = 4 * kKeysPerTable, .runs = 20}
                                    : Sizes{.rows_per_table = 32 * kKeysPerTable, .runs = 1000};
  PinThread(0);
  std::vector<Result> results;
  for (uint32_t dim : {32, 128}) {
    HPS_ASSIGN_OR_RETURN(Result result, Measure(dim, sizes));
    results.push_back(std::move(result));
    HPS_ASSIGN_OR_RETURN(result, MeasureTwoParts(dim, sizes));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace hps::bench
