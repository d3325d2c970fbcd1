#include "bench/redis/memory_redis.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "import/zipf.h"
#include "l2_memory/memory_tier.h"
#include "query/session_factory.h"
#include "testing/fakes/plain_tier.h"
#include "testing/fakes/stamped_row.h"
#include "tier/redis_tier.h"

namespace hps::bench {
namespace {

constexpr double kAlpha = 1.2;         // the skew of the keys
constexpr size_t kMemoryDivisor = 10;  // of the rows, what memory has room for
constexpr size_t kFillRounds = 8;      // for each round that is measured
constexpr Duration kDrainTimeout = std::chrono::seconds(30);

// A served table whose rows are all in Redis; level 3 is empty.
class Served {
 public:
  static absl::StatusOr<std::unique_ptr<Served>> Create(const RedisConfig& config, uint32_t dim,
                                                        const RedisSizes& sizes, bool has_memory) {
    std::unique_ptr<Served> served(new Served(size_t{dim} * sizeof(float)));
    HPS_RETURN_IF_ERROR(served->MakeTable(config, dim, sizes, has_memory));
    HPS_ASSIGN_OR_RETURN(served->fetch_, WorkerPool::Create({.name = "fetch"}));
    HPS_ASSIGN_OR_RETURN(served->promote_, WorkerPool::Create({.name = "promote"}));
    HPS_ASSIGN_OR_RETURN(served->factory_,
                         SessionFactory::Create({.fetch_executor = served->fetch_.get(),
                                                 .promote_executor = served->promote_.get(),
                                                 .timeout = std::chrono::seconds(30)}));
    served->model_ =
        std::make_unique<LiveModel>("m", served->factory_->epoch_domain(), *served->promote_);
    HPS_RETURN_IF_ERROR(served->model_->Publish({served->table_}));
    HPS_ASSIGN_OR_RETURN(served->session_, served->factory_->NewSession(*served->model_, {}));
    return served;
  }
  ~Served() {
    session_.reset();
    fetch_.reset();
    promote_.reset();
  }

  // Errors: DATA_LOSS (a row did not come from level 2).
  absl::Status Lookup(std::span<const Key> keys) {
    rows_.resize(std::max(rows_.size(), keys.size() * row_bytes_));
    const HostTableQuery query{
        .table = {0}, .keys = keys, .rows = std::span(rows_).first(keys.size() * row_bytes_)};
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(session_->Lookup({.queries = {&query, 1}}, &counts));
    if (counts[KeyStatus::kHitL2] == keys.size()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("bench redis: ", counts[KeyStatus::kHitL2], " of ",
                                            keys.size(), " rows came from level 2"));
  }
  // Of the last lookup, which was of these keys.
  absl::Status CheckRows(std::span<const Key> keys) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!StampedRow::Matches(kRedisTable, keys[i], 0, {&rows_[i * row_bytes_], row_bytes_}))
        return absl::DataLossError("bench redis: a wrong row");
    }
    return absl::OkStatus();
  }
  // How many of the keys the first part of level 2 has.
  absl::StatusOr<uint64_t> InFirstPart(std::span<const Key> keys) {
    std::vector<FetchOutcome> outcomes(keys.size());
    const FetchBatch batch = {.keys = keys,
                              .rows = {.data = rows_.data(),
                                       .row_count = keys.size(),
                                       .row_bytes = row_bytes_,
                                       .stride_bytes = row_bytes_},
                              .outcomes = outcomes};
    HPS_ASSIGN_OR_RETURN(const FetchCounts counts,
                         table_->l2()[0].table().Fetch(batch, kNoDeadline));
    return counts.hits;
  }
  absl::Status AwaitPromotions() { return factory_->DrainPromotions(kDrainTimeout); }

 private:
  explicit Served(size_t row_bytes) : row_bytes_(row_bytes) {}

  absl::Status MakeTable(const RedisConfig& config, uint32_t dim, const RedisSizes& sizes,
                         bool has_memory) {
    const TableSpec spec{.name = "m/t", .dim = dim};
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<PlainDurableTable>(spec);
    HPS_ASSIGN_OR_RETURN(redis_, MakeRedisTier(config));
    if (has_memory) {
      const uint64_t bytes = MemoryTierBytesFor(sizes.rows / kMemoryDivisor, row_bytes_, {});
      HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> memory, memory_->OpenTable(spec, 1, bytes));
      parts.l2.push_back({.table = std::move(memory)});
    }
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> redis, redis_.tier->OpenTable(spec, 1, 0));
    HPS_RETURN_IF_ERROR(Fill(*redis, sizes.rows));
    parts.l2.push_back({.table = std::move(redis), .tier = redis_.tier.get()});
    table_ = std::make_shared<LiveTable>(std::move(parts));
    return absl::OkStatus();
  }

  absl::Status Fill(LossyTable& table, size_t row_count) const {
    for (size_t first = 0; first < row_count; first += kRedisInsertBatch) {
      std::vector<Key> keys(std::min(kRedisInsertBatch, row_count - first));
      std::vector<std::byte> rows(keys.size() * row_bytes_);
      for (size_t i = 0; i < keys.size(); ++i) {
        keys[i] = RedisKeyOf(first + i);
        StampedRow::Write(kRedisTable, keys[i], 0, {&rows[i * row_bytes_], row_bytes_});
      }
      const RowBatch batch = {.keys = keys,
                              .rows = {.data = rows.data(),
                                       .row_count = keys.size(),
                                       .row_bytes = row_bytes_,
                                       .stride_bytes = row_bytes_}};
      HPS_RETURN_IF_ERROR(table.Insert(batch, 0).status());
    }
    return absl::OkStatus();
  }

  const size_t row_bytes_;
  const std::unique_ptr<LossyTier> memory_ = MakeMemoryTier({});
  RedisTier redis_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> model_;
  std::shared_ptr<LiveTable> table_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::unique_ptr<LookupSession> session_;
  std::vector<std::byte> rows_;
};

std::vector<std::vector<Key>> SkewedBatches(const RedisSizes& sizes, size_t batch,
                                            RandomStream& random) {
  const ZipfDistribution ranks(sizes.rows, kAlpha);
  std::vector<std::vector<Key>> batches(std::max<size_t>(1, sizes.keys_per_round / batch));
  for (std::vector<Key>& keys : batches) {
    for (size_t i = 0; i < batch; ++i) keys.push_back(RedisKeyOf(ranks.Sample(random) - 1));
  }
  return batches;
}

// Keys per second. The last batch is checked.
absl::StatusOr<double> TimeBatches(Served& served, const std::vector<std::vector<Key>>& batches,
                                   std::vector<double>* call_us) {
  size_t count = 0;
  const Stopwatch watch;
  for (const std::vector<Key>& keys : batches) {
    const Stopwatch one;
    HPS_RETURN_IF_ERROR(served.Lookup(keys));
    if (call_us != nullptr) call_us->push_back(one.us());
    count += keys.size();
  }
  const double seconds = watch.seconds();
  HPS_RETURN_IF_ERROR(served.CheckRows(batches.back()));
  return static_cast<double>(count) / seconds;
}

// Asks for skewed keys until the rows that memory has are those that are asked for most: rarer ones
// come up once in a million keys.
absl::Status FillMemory(Served& served, const RedisSizes& sizes) {
  RandomStream random(20261126);
  for (size_t round = 0; round < kFillRounds * sizes.rounds; ++round) {
    const auto batches = SkewedBatches(sizes, sizes.keys_per_round / 8, random);
    HPS_RETURN_IF_ERROR(TimeBatches(served, batches, nullptr).status());
  }
  return served.AwaitPromotions();
}

}  // namespace

absl::Status MeasureMemoryRedis(const std::vector<std::string>& nodes, bool cluster, uint32_t dim,
                                const RedisSizes& sizes, std::vector<Result>& results) {
  const RedisConfig config = RedisConfigFor(nodes, cluster);
  HPS_ASSIGN_OR_RETURN(const auto alone, Served::Create(config, dim, sizes, false));
  HPS_ASSIGN_OR_RETURN(const auto both, Served::Create(config, dim, sizes, true));
  HPS_RETURN_IF_ERROR(FillMemory(*both, sizes));
  for (const size_t batch : {1024, 16'384}) {
    RandomStream random(20261125);
    std::vector<double> ours, redis, call_us, shares;
    for (size_t round = 0; round < sizes.rounds; ++round) {
      const auto batches = SkewedBatches(sizes, batch, random);
      HPS_ASSIGN_OR_RETURN(const double of_both, TimeBatches(*both, batches, &call_us));
      HPS_ASSIGN_OR_RETURN(const double of_redis, TimeBatches(*alone, batches, nullptr));
      HPS_ASSIGN_OR_RETURN(const uint64_t in_memory, both->InFirstPart(batches.back()));
      shares.push_back(static_cast<double>(in_memory) / static_cast<double>(batches.back().size()));
      ours.push_back(of_both);
      redis.push_back(of_redis);
    }
    Result result = MakeResult("fetch_memory_redis", "keys/s", Median(ours), Median(redis));
    result.params = {{"servers", cluster ? "cluster" : "standalone"},
                     {"dim", absl::StrCat(dim)},
                     {"batch", absl::StrCat(batch)}};
    result.target = ">= 5";
    result.p50 = Quantile(call_us, 0.5);
    result.p99 = Quantile(call_us, 0.99);
    result.runs = sizes.rounds;
    result.measured = {{"share that memory has", Median(shares)}};
    results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

}  // namespace hps::bench
