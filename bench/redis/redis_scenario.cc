// `hps bench redis`: level 2 on Redis beside hiredis' own client on the same servers: a pipeline of
// plain GETs (the bound), one MGET per batch, a pipeline of plain SETs; and the memory per row.
// Then level 2 in memory and then Redis, beside Redis alone (memory_redis.h). Last, a cluster of
// which one server has ended, beside the same batches without that server's keys (the bound).
//
// Figure and bound alternate, so that what else the machine does meets both.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/redis/memory_redis.h"
#include "bench/redis/plain_redis.h"
#include "bench/redis/redis_rows.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "testing/fakes/stamped_row.h"
#include "tier/redis_tier.h"

namespace hps::bench {
namespace {

constexpr char kStandaloneVariable[] = "HPS_BENCH_REDIS";
constexpr char kClusterVariable[] = "HPS_BENCH_REDIS_CLUSTER";
// Not empty: the scenario may end a server of the cluster.
constexpr char kEndVariable[] = "HPS_BENCH_REDIS_END";

// Rows of one width, a table of level 2 for them, and plain Redis, all on the same servers.
class World {
 public:
  static absl::StatusOr<std::unique_ptr<World>> Create(const std::vector<std::string>& nodes,
                                                       bool cluster, uint32_t dim,
                                                       const RedisSizes& sizes);

  const RedisSizes& sizes() const { return sizes_; }
  bool is_cluster() const { return cluster_; }
  uint32_t dim() const { return static_cast<uint32_t>(row_bytes_ / 4); }
  PlainRedis& plain() { return *plain_; }

  absl::Status InsertAll();
  absl::Status SetAll();
  // Keys of rows at random. `out` gets rows of the same batches.
  std::vector<Key> RandomKeys(size_t count);
  HostRows Out(size_t count);
  // Errors: DATA_LOSS (a row did not come, or is wrong).
  absl::Status Fetch(std::span<const Key> keys, const HostRows& out);
  // The number of rows that came, of servers that may be down.
  absl::StatusOr<size_t> FetchSome(std::span<const Key> keys);
  // Of the last fetch.
  bool IsHit(size_t position) const { return outcomes_[position] == FetchOutcome::kHit; }
  const std::vector<Key>& keys() const { return keys_; }
  absl::Status CheckRows(std::span<const Key> keys, const HostRows& rows) const;

 private:
  World(size_t row_bytes, const RedisSizes& sizes, bool cluster)
      : row_bytes_(row_bytes), sizes_(sizes), cluster_(cluster) {}
  HostRows RowsOf(size_t begin, size_t count);
  absl::Status InBatches(
      const std::function<absl::Status(std::span<const Key>, const HostRows&)>& call);

  const size_t row_bytes_;
  const RedisSizes sizes_;
  const bool cluster_;
  std::vector<Key> keys_;
  std::vector<std::byte> rows_;
  std::vector<std::byte> out_;
  std::vector<FetchOutcome> outcomes_;
  std::mt19937_64 random_{20261125};
  std::unique_ptr<PlainRedis> plain_;
  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<LossyTable> table_;
};

absl::StatusOr<std::unique_ptr<World>> World::Create(const std::vector<std::string>& nodes,
                                                     bool cluster, uint32_t dim,
                                                     const RedisSizes& sizes) {
  const size_t row_bytes = size_t{dim} * 4;
  std::unique_ptr<World> world(new World(row_bytes, sizes, cluster));
  HPS_ASSIGN_OR_RETURN(world->plain_, PlainRedis::Connect(nodes, cluster));
  HPS_ASSIGN_OR_RETURN(const uint64_t key_count, world->plain_->KeyCount());
  if (key_count != 0) {
    return absl::FailedPreconditionError(
        "bench redis: the servers have keys; it needs empty ones, because it empties them");
  }
  world->keys_.resize(sizes.rows);
  world->rows_.resize(sizes.rows * row_bytes);
  for (size_t i = 0; i < sizes.rows; ++i) {
    world->keys_[i] = RedisKeyOf(i);
    StampedRow::Write(kRedisTable, world->keys_[i], 0, {&world->rows_[i * row_bytes], row_bytes});
  }
  HPS_ASSIGN_OR_RETURN(RedisTier redis, MakeRedisTier(RedisConfigFor(nodes, cluster)));
  world->tier_ = std::move(redis.tier);
  TableSpec spec;
  spec.name = "bench/table";
  spec.dim = dim;
  HPS_ASSIGN_OR_RETURN(world->table_, world->tier_->OpenTable(spec, 1, 0));
  return world;
}

HostRows World::RowsOf(size_t begin, size_t count) {
  return {.data = &rows_[begin * row_bytes_],
          .row_count = count,
          .row_bytes = row_bytes_,
          .stride_bytes = row_bytes_};
}

HostRows World::Out(size_t count) {
  out_.resize(std::max(out_.size(), count * row_bytes_));
  return {
      .data = out_.data(), .row_count = count, .row_bytes = row_bytes_, .stride_bytes = row_bytes_};
}

absl::Status World::InBatches(
    const std::function<absl::Status(std::span<const Key>, const HostRows&)>& call) {
  for (size_t begin = 0; begin < keys_.size(); begin += kRedisInsertBatch) {
    const size_t count = std::min(kRedisInsertBatch, keys_.size() - begin);
    HPS_RETURN_IF_ERROR(call(std::span(keys_).subspan(begin, count), RowsOf(begin, count)));
  }
  return absl::OkStatus();
}

absl::Status World::InsertAll() {
  return InBatches([this](std::span<const Key> keys, const HostRows& rows) -> absl::Status {
    HPS_ASSIGN_OR_RETURN(const InsertCounts counts,
                         table_->Insert({.keys = keys, .rows = rows}, 0));
    if (counts.inserted + counts.held == keys.size()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("bench redis: ", counts.dropped, " of ", keys.size(),
                                            " rows could not be inserted"));
  });
}

absl::Status World::SetAll() {
  return InBatches(
      [this](std::span<const Key> keys, const HostRows& rows) { return plain_->Set(keys, rows); });
}

std::vector<Key> World::RandomKeys(size_t count) {
  std::vector<Key> keys(count);
  for (Key& key : keys) key = keys_[random_() % keys_.size()];
  return keys;
}

absl::Status World::Fetch(std::span<const Key> keys, const HostRows& out) {
  outcomes_.resize(std::max(outcomes_.size(), keys.size()));
  HPS_ASSIGN_OR_RETURN(
      const FetchCounts counts,
      table_->Fetch(
          {.keys = keys, .rows = out, .outcomes = std::span(outcomes_).first(keys.size())},
          kNoDeadline));
  if (counts.hits == keys.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("bench redis: ", keys.size() - counts.hits, " of ",
                                          keys.size(), " rows did not come"));
}

absl::StatusOr<size_t> World::FetchSome(std::span<const Key> keys) {
  outcomes_.resize(std::max(outcomes_.size(), keys.size()));
  const HostRows out = Out(keys.size());
  HPS_ASSIGN_OR_RETURN(
      const FetchCounts counts,
      table_->Fetch(
          {.keys = keys, .rows = out, .outcomes = std::span(outcomes_).first(keys.size())},
          kNoDeadline));
  return counts.hits;
}

absl::Status World::CheckRows(std::span<const Key> keys, const HostRows& rows) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!StampedRow::Matches(kRedisTable, keys[i], 0, {rows.row(i), row_bytes_}))
      return absl::DataLossError("bench redis: a wrong row");
  }
  return absl::OkStatus();
}

using Call = std::function<absl::Status(std::span<const Key>, const HostRows&)>;

// Rows per second of one round, whose last batch is checked.
absl::StatusOr<double> TimeRound(World& world, size_t batch, const Call& call,
                                 std::vector<double>* call_us) {
  const size_t calls = std::max<size_t>(1, world.sizes().keys_per_round / batch);
  const std::vector<Key> keys = world.RandomKeys(calls * batch);
  const HostRows out = world.Out(batch);
  const Stopwatch watch;
  for (size_t i = 0; i < calls; ++i) {
    const Stopwatch one;
    HPS_RETURN_IF_ERROR(call(std::span(keys).subspan(i * batch, batch), out));
    if (call_us != nullptr) call_us->push_back(one.us());
  }
  const double seconds = watch.seconds();
  HPS_RETURN_IF_ERROR(world.CheckRows(std::span(keys).last(batch), out));
  return static_cast<double>(keys.size()) / seconds;
}

std::map<std::string, std::string> ParamsOf(const World& world) {
  return {{"servers", world.is_cluster() ? "cluster" : "standalone"},
          {"dim", absl::StrCat(world.dim())}};
}

absl::Status MeasureFetch(World& world, size_t batch, std::vector<Result>& results) {
  std::vector<double> ours, gets, mgets, call_us;
  for (size_t round = 0; round < world.sizes().rounds; ++round) {
    HPS_ASSIGN_OR_RETURN(
        const double fetched,
        TimeRound(
            world, batch, [&](auto keys, const auto& out) { return world.Fetch(keys, out); },
            &call_us));
    ours.push_back(fetched);
    HPS_ASSIGN_OR_RETURN(
        const double got,
        TimeRound(
            world, batch, [&](auto keys, const auto& out) { return world.plain().Get(keys, out); },
            nullptr));
    gets.push_back(got);
    if (world.is_cluster()) continue;
    HPS_ASSIGN_OR_RETURN(const double got_at_once, TimeRound(
                                                       world, batch,
                                                       [&](auto keys, const auto& out) {
                                                         return world.plain().GetAtOnce(keys, out);
                                                       },
                                                       nullptr));
    mgets.push_back(got_at_once);
  }
  Result fetch = MakeResult("fetch", "rows/s", Median(ours), Median(gets));
  fetch.params = ParamsOf(world);
  fetch.params["batch"] = absl::StrCat(batch);
  fetch.target = ">= 0.9";
  fetch.p50 = Quantile(call_us, 0.5);
  fetch.p99 = Quantile(call_us, 0.99);
  fetch.runs = world.sizes().rounds;
  if (!mgets.empty()) {
    Result mget = MakeResult("fetch_mget", "rows/s", Median(ours), Median(mgets));
    mget.params = fetch.params;
    mget.target = ">= 1";
    mget.runs = fetch.runs;
    results.push_back(std::move(mget));
  }
  results.push_back(std::move(fetch));
  return absl::OkStatus();
}

struct Fill {
  double rows_per_second = 0;
  double bytes_per_row = 0;  // of the servers' memory
};

// Empties the servers, and fills them.
absl::StatusOr<Fill> TimeFill(World& world, absl::Status (World::*fill)()) {
  HPS_RETURN_IF_ERROR(world.plain().RemoveAll());
  HPS_ASSIGN_OR_RETURN(const uint64_t before, world.plain().UsedBytes());
  const Stopwatch watch;
  HPS_RETURN_IF_ERROR((world.*fill)());
  const double seconds = watch.seconds();
  HPS_ASSIGN_OR_RETURN(const uint64_t after, world.plain().UsedBytes());
  const auto rows = static_cast<double>(world.sizes().rows);
  return Fill{.rows_per_second = rows / seconds,
              .bytes_per_row = (static_cast<double>(after) - static_cast<double>(before)) / rows};
}

absl::Status MeasureInsert(World& world, std::vector<Result>& results) {
  std::vector<double> ours, plain, our_bytes, plain_bytes;
  for (size_t round = 0; round < world.sizes().rounds; ++round) {
    HPS_ASSIGN_OR_RETURN(const Fill set, TimeFill(world, &World::SetAll));
    plain.push_back(set.rows_per_second);
    plain_bytes.push_back(set.bytes_per_row);
    HPS_ASSIGN_OR_RETURN(const Fill inserted, TimeFill(world, &World::InsertAll));
    ours.push_back(inserted.rows_per_second);
    our_bytes.push_back(inserted.bytes_per_row);
  }
  Result insert = MakeResult("insert", "rows/s", Median(ours), Median(plain));
  insert.params = ParamsOf(world);
  insert.params["batch"] = absl::StrCat(kRedisInsertBatch);
  insert.target = ">= 0.8";
  insert.runs = world.sizes().rounds;
  results.push_back(std::move(insert));
  Result memory = MakeResult("memory", "bytes/row", Median(our_bytes), Median(plain_bytes));
  memory.params = ParamsOf(world);
  memory.target = "<= 1.15";
  memory.runs = world.sizes().rounds;
  results.push_back(std::move(memory));
  return absl::OkStatus();
}

// The keys whose server has ended. After it, that server's circuit breaker is open.
absl::StatusOr<std::unordered_set<Key>> LostKeys(World& world) {
  std::unordered_set<Key> lost;
  for (size_t begin = 0; begin < world.keys().size(); begin += kRedisInsertBatch) {
    const auto keys = std::span(world.keys())
                          .subspan(begin, std::min(kRedisInsertBatch, world.keys().size() - begin));
    HPS_RETURN_IF_ERROR(world.FetchSome(keys).status());
    for (size_t i = 0; i < keys.size(); ++i)
      if (!world.IsHit(i)) lost.insert(keys[i]);
  }
  return lost;
}

// `whole` is asked for all keys, `spared` for those only that have a server. They take turns, so
// that what else the machine does meets both.
absl::StatusOr<Result> MeasureDeadServer(World& whole, World& spared,
                                         const std::unordered_set<Key>& lost, size_t batch) {
  const size_t calls = whole.sizes().rounds * 200;
  std::vector<double> whole_us, spared_us;
  for (size_t call = 0; call < calls; ++call) {
    const std::vector<Key> keys = whole.RandomKeys(batch);
    std::vector<Key> kept;
    for (const Key key : keys)
      if (!lost.contains(key)) kept.push_back(key);
    for (const auto& [world, asked, times] :
         {std::tuple(&whole, std::span<const Key>(keys), &whole_us),
          std::tuple(&spared, std::span<const Key>(kept), &spared_us)}) {
      const Stopwatch watch;
      HPS_ASSIGN_OR_RETURN(const size_t hits, world->FetchSome(asked));
      times->push_back(watch.us());
      if (hits != kept.size()) {
        return absl::DataLossError(
            absl::StrCat("bench redis: ", hits, " rows came, ", kept.size(), " have a server"));
      }
    }
  }
  Result result = MakeResult("fetch_dead_server_p99", "us", Quantile(whole_us, 0.99),
                             Quantile(spared_us, 0.99));
  result.params = ParamsOf(whole);
  result.params["batch"] = absl::StrCat(batch);
  result.target = "<= 1.2";
  result.p50 = Quantile(whole_us, 0.5);
  result.p99 = Quantile(whole_us, 0.99);
  result.runs = calls;
  return result;
}

absl::Status MeasureDeadServers(const std::vector<std::string>& nodes, const Options& options,
                                std::vector<Result>& results) {
  const char* const may_end = std::getenv(kEndVariable);
  if (may_end == nullptr || *may_end == '\0') {
    results.push_back(SkippedResult("fetch_dead_server_p99", "us",
                                    absl::StrCat(kEndVariable,
                                                 " is not set: it allows to end a "
                                                 "server, as tools/bench_redis.py "
                                                 "does")));
    return absl::OkStatus();
  }
  constexpr uint32_t kDim = 32;
  HPS_ASSIGN_OR_RETURN(const auto whole,
                       World::Create(nodes, true, kDim, RedisSizesFor(options.quick)));
  HPS_ASSIGN_OR_RETURN(const auto spared,
                       World::Create(nodes, true, kDim, RedisSizesFor(options.quick)));
  HPS_RETURN_IF_ERROR(whole->InsertAll());
  HPS_RETURN_IF_ERROR(spared->InsertAll());
  whole->plain().EndFirstServer();
  HPS_ASSIGN_OR_RETURN(const std::unordered_set<Key> lost, LostKeys(*whole));
  for (const size_t batch : {128, 1024, 16'384}) {
    HPS_ASSIGN_OR_RETURN(Result result, MeasureDeadServer(*whole, *spared, lost, batch));
    results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

absl::Status MeasureServers(const char* variable, bool cluster, const Options& options,
                            std::vector<Result>& results) {
  const char* const given = std::getenv(variable);
  if (given == nullptr || *given == '\0') {
    Result skipped = SkippedResult(
        "fetch", "rows/s",
        absl::StrCat(variable, " is not set: run tools/bench_redis.py, which starts the servers"));
    skipped.params["servers"] = cluster ? "cluster" : "standalone";
    results.push_back(std::move(skipped));
    return absl::OkStatus();
  }
  const std::vector<std::string> nodes = absl::StrSplit(given, ',');
  for (const uint32_t dim : {32U, 128U}) {
    HPS_ASSIGN_OR_RETURN(const auto world,
                         World::Create(nodes, cluster, dim, RedisSizesFor(options.quick)));
    HPS_RETURN_IF_ERROR(MeasureInsert(*world, results));
    HPS_RETURN_IF_ERROR(world->SetAll());  // beside the rows of level 2
    for (const size_t batch : {128, 1024, 16'384})
      HPS_RETURN_IF_ERROR(MeasureFetch(*world, batch, results));
    HPS_RETURN_IF_ERROR(world->plain().RemoveAll());
    HPS_RETURN_IF_ERROR(MeasureMemoryRedis(nodes, cluster, dim, world->sizes(), results));
    HPS_RETURN_IF_ERROR(world->plain().RemoveAll());
  }
  return cluster ? MeasureDeadServers(nodes, options, results) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunRedisScenario(const Options& options) {
  std::vector<Result> results;
  HPS_RETURN_IF_ERROR(MeasureServers(kStandaloneVariable, false, options, results));
  HPS_RETURN_IF_ERROR(MeasureServers(kClusterVariable, true, options, results));
  return results;
}

}  // namespace hps::bench
