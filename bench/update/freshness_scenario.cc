// How soon published rows are visible, and what readers notice of it.
//
// "freshness": a producer offers 20,000 rows/s at their intended times, and `hps serve` in a
// process of its own is asked again and again over HTTP for some of the rows. A row holds the
// number of the round in which it was published, so the first answer with a round tells when it
// became visible; the time is counted from the intended time of publishing.
//
// "reader_p99": lookups of one session on one core, while the stream is applied at full speed on
// another core of the same process, beside the same lookups without a stream.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/macros.h"
#include "bench/latency_histogram.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/serve/serve_http_client.h"
#include "bench/serve/serve_world.h"
#include "bench/update/update_world.h"
#include "hps/update_producer.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRowsPerSecond = 20'000;
constexpr size_t kTableRows = kRowsPerSecond;  // a round, in which each is published once: 1 s
constexpr size_t kBatchRows = 200;             // published at a time
constexpr size_t kProbeKeys = 512;
constexpr auto kProbePause = std::chrono::milliseconds(5);
constexpr auto kTimeout = std::chrono::seconds(30);
constexpr size_t kRowBytes = kServeDim * sizeof(float);

// A row of a round: the number and its complement, so that no row of the import looks like one.
void WriteRound(uint64_t round, std::byte* row) {
  const std::array<uint64_t, 2> words = {round, ~round};
  std::memcpy(row, words.data(), sizeof(words));
}
uint64_t RoundOf(const char* row) {
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), row, sizeof(words));
  return words[0] == ~words[1] ? words[0] : 0;
}

// Publishes every key once in each round, at a steady rate.
class Publisher {
 public:
  static absl::StatusOr<std::unique_ptr<Publisher>> Create(const std::string& brokers,
                                                           std::span<const Key> keys) {
    UpdateProducerOptions options;
    options.brokers = brokers;
    options.table.name = absl::StrCat(kServeModel, "/", kServeTable);
    options.table.dim = kServeDim;
    HPS_ASSIGN_OR_RETURN(auto producer, UpdateProducer::Create(options));
    return std::unique_ptr<Publisher>(new Publisher(std::move(producer), keys));
  }

  // Round 1, as fast as it goes.
  absl::Status PublishFirst() {
    for (size_t first = 0; first < keys_.size(); first += kBatchRows)
      HPS_RETURN_IF_ERROR(Publish(1, first));
    return producer_->Flush(kTimeout);
  }
  // Rounds 2 to `last`; the key at `index` at TimeOf(round, index).
  absl::Status PublishUntil(uint64_t last) {
    for (uint64_t round = 2; round <= last; ++round) {
      for (size_t first = 0; first < keys_.size(); first += kBatchRows) {
        std::this_thread::sleep_until(TimeOf(round, first));
        late_ = std::max(late_, Clock::now() - TimeOf(round, first));
        HPS_RETURN_IF_ERROR(Publish(round, first));
      }
    }
    return producer_->Flush(kTimeout);
  }
  void Begin() { begin_ = Clock::now(); }
  // Batches are published as a whole.
  Clock::time_point TimeOf(uint64_t round, size_t index) const {
    const size_t before = (round - 2) * keys_.size() + index / kBatchRows * kBatchRows;
    return begin_ + std::chrono::nanoseconds(before * (1'000'000'000 / kRowsPerSecond));
  }
  double late_ms() const { return std::chrono::duration<double, std::milli>(late_).count(); }

 private:
  Publisher(std::unique_ptr<UpdateProducer> producer, std::span<const Key> keys)
      : producer_(std::move(producer)), keys_(keys), rows_(kBatchRows * kRowBytes) {}

  absl::Status Publish(uint64_t round, size_t first) {
    const auto keys = keys_.subspan(first, std::min(kBatchRows, keys_.size() - first));
    for (size_t i = 0; i < keys.size(); ++i) WriteRound(round, &rows_[i * kRowBytes]);
    return producer_->Upsert(keys, std::span(rows_).first(keys.size() * kRowBytes), kTimeout);
  }

  const std::unique_ptr<UpdateProducer> producer_;
  const std::span<const Key> keys_;
  std::vector<std::byte> rows_;
  Clock::time_point begin_;
  Clock::duration late_{};  // the longest delay of the generator itself
};

// Asks the server for some of the keys, and knows the newest round that it has shown of each.
class Prober {
 public:
  static absl::StatusOr<std::unique_ptr<Prober>> Create(const ServeWorld& world) {
    HPS_ASSIGN_OR_RETURN(auto client, HttpServeClient::Connect(world.http()));
    auto prober = std::unique_ptr<Prober>(new Prober(std::move(client)));
    std::vector<Key> keys;
    for (size_t i = 0; i < kProbeKeys; ++i) {
      prober->indexes_.push_back(i * world.keys().size() / kProbeKeys);
      keys.push_back(world.keys()[prober->indexes_.back()]);
    }
    prober->request_ = HttpProtocol().encode(keys, {});
    return prober;
  }

  // Until every key has shown `round`. Adds how long each round since the second took to be
  // visible; a round that was replaced before it was seen counts as seen with its successor.
  absl::Status AwaitRound(uint64_t round, Clock::time_point end, const Publisher& publisher) {
    while (*std::min_element(rounds_.begin(), rounds_.end()) < round) {
      HPS_ASSIGN_OR_RETURN(const Answer answer, client_->Ask(request_));
      const auto now = Clock::now();
      if (answer != Answer::kRows) return absl::UnavailableError("the server refused a request");
      if (now > end) return absl::DeadlineExceededError("published rows did not become visible");
      const char* const rows = client_->body().last(kProbeKeys * kRowBytes).data();
      for (size_t i = 0; i < kProbeKeys; ++i) {
        const uint64_t shown = RoundOf(rows + i * kRowBytes);
        if (shown < rounds_[i]) return absl::InternalError("the server went back to an older row");
        while (rounds_[i] < shown) {
          if (++rounds_[i] >= 2) latencies.Add(now - publisher.TimeOf(rounds_[i], indexes_[i]));
        }
      }
      std::this_thread::sleep_for(kProbePause);
    }
    return absl::OkStatus();
  }

  LatencyHistogram latencies;

 private:
  explicit Prober(std::unique_ptr<HttpServeClient> client) : client_(std::move(client)) {}

  const std::unique_ptr<HttpServeClient> client_;
  std::string request_;
  std::vector<size_t> indexes_;  // of the keys
  std::vector<uint64_t> rounds_ = std::vector<uint64_t>(kProbeKeys);
};

absl::StatusOr<Result> MeasureFreshness(const Options& options, const std::string& brokers) {
  const uint64_t last_round = options.quick ? 3 : 21;
  HPS_ASSIGN_OR_RETURN(
      const auto world,
      ServeWorld::Create(options.directory + "/freshness", kTableRows,
                         absl::StrCat("[update]\nbrokers = [\"",
                                      absl::StrReplaceAll(brokers, {{",", "\", \""}}), "\"]\n")));
  HPS_ASSIGN_OR_RETURN(const auto publisher, Publisher::Create(brokers, world->keys()));
  HPS_ASSIGN_OR_RETURN(const auto prober, Prober::Create(*world));
  HPS_RETURN_IF_ERROR(publisher->PublishFirst());
  HPS_RETURN_IF_ERROR(prober->AwaitRound(1, Clock::now() + kTimeout, *publisher));
  publisher->Begin();
  absl::Status published;
  std::thread thread([&] { published = publisher->PublishUntil(last_round); });
  const absl::Status seen =
      prober->AwaitRound(last_round, publisher->TimeOf(last_round + 1, 0) + kTimeout, *publisher);
  thread.join();
  HPS_RETURN_IF_ERROR(published);
  HPS_RETURN_IF_ERROR(seen);
  const LatencyHistogram& latencies = prober->latencies;
  Result result = MakeResult("freshness", "s", latencies.QuantileUs(0.99) / 1e6, std::nullopt);
  result.params = {{"rows_per_second", absl::StrCat(kRowsPerSecond)},
                   {"dim", absl::StrCat(kServeDim)},
                   {"rows", absl::StrCat(world->keys().size())}};
  result.target = "<= 1";
  result.p50 = latencies.QuantileUs(0.5);
  result.p99 = latencies.QuantileUs(0.99);
  result.runs = 1;
  result.measured = {{"samples", static_cast<double>(latencies.count())},
                     {"generator_late_ms_max", publisher->late_ms()}};
  result.latency_points = latencies.Points();
  return result;
}

// Random lookups until `done`. The calling thread moves to the first core.
class Reader {
 public:
  static absl::StatusOr<std::unique_ptr<Reader>> Create(Store& store, const UpdateWorld& world) {
    HPS_ASSIGN_OR_RETURN(auto session, store.NewSession(world.setting().model, {}));
    HPS_ASSIGN_OR_RETURN(const TableIndex table, session->FindTable("t0"));
    return std::unique_ptr<Reader>(new Reader(std::move(session), table, world));
  }

  absl::Status Run(const std::atomic<bool>& done, LatencyHistogram& latencies) {
    PinThread(0);
    std::mt19937_64 random(2);
    const HostTableQuery query{.table = table_, .keys = keys_, .rows = rows_};
    while (!done) {
      for (Key& key : keys_) key = world_.keys()[random() % world_.keys().size()];
      const auto begin = Clock::now();
      HPS_RETURN_IF_ERROR(session_->Lookup({.queries = {&query, 1}}, nullptr));
      latencies.Add(Clock::now() - begin);
    }
    return absl::OkStatus();
  }

 private:
  Reader(std::unique_ptr<LookupSession> session, TableIndex table, const UpdateWorld& world)
      : session_(std::move(session)),
        table_(table),
        world_(world),
        keys_(kServeKeys),
        rows_(kServeKeys * world.row_bytes()) {}

  const std::unique_ptr<LookupSession> session_;
  const TableIndex table_;
  const UpdateWorld& world_;
  std::vector<Key> keys_;
  std::vector<std::byte> rows_;
};

// Lookups while all changes are applied or, without a stream, for some seconds.
// Errors: DEADLINE_EXCEEDED if not all changes were applied within kSecondsMax.
absl::Status ReadDuring(const UpdateWorld& world, bool with_stream, LatencyHistogram& latencies) {
  constexpr double kSecondsWithout = 3;
  constexpr double kSecondsMax = 120;
  HPS_ASSIGN_OR_RETURN(const auto store, world.OpenStore(with_stream));
  HPS_ASSIGN_OR_RETURN(const auto reader, Reader::Create(*store, world));
  const auto applied = [&] { return store->Statistics().updates.rows_upserted; };
  const Stopwatch limit;
  while (with_stream && applied() == 0 && limit.seconds() < kSecondsMax)
    std::this_thread::sleep_for(kProbePause);
  std::atomic<bool> done{false};
  absl::Status read;
  std::thread thread([&] { read = reader->Run(done, latencies); });
  const double seconds_max = with_stream ? kSecondsMax : limit.seconds() + kSecondsWithout;
  const auto is_over = [&] { return with_stream && applied() >= world.setting().changes; };
  while (limit.seconds() < seconds_max && !is_over()) std::this_thread::sleep_for(kProbePause);
  done = true;
  thread.join();
  HPS_RETURN_IF_ERROR(read);
  if (!with_stream || is_over()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "only ", applied(), " of ", world.setting().changes, " changes were applied within ",
      kSecondsMax, " s: ", store->Statistics().updates.stream.problem));
}

absl::Status MeasureReader(UpdateWorld& world, std::vector<Result>& results) {
  constexpr int kRuns = 3;
  std::vector<double> without_p99;
  std::vector<double> during_p99;
  std::vector<double> during_p50;
  for (int run = 0; run < kRuns; ++run) {
    HPS_RETURN_IF_ERROR(world.MakeStore());
    for (const bool with_stream : {false, true}) {
      LatencyHistogram latencies;
      HPS_RETURN_IF_ERROR(ReadDuring(world, with_stream, latencies));
      (with_stream ? during_p99 : without_p99).push_back(latencies.QuantileUs(0.99));
      if (with_stream) during_p50.push_back(latencies.QuantileUs(0.5));
    }
  }
  Result result = MakeResult("reader_p99", "us", Median(during_p99), Median(without_p99));
  result.params = {{"keys", absl::StrCat(kServeKeys)},
                   {"dim", absl::StrCat(world.setting().dim)},
                   {"rows", absl::StrCat(world.keys().size())}};
  result.target = "<= 1.3";
  result.p50 = Median(during_p50);
  result.p99 = result.figure;
  result.runs = kRuns;
  results.push_back(std::move(result));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunFreshnessScenario(const Options& options) {
  const absl::StatusOr<std::string> brokers = FindBrokers();
  std::vector<Result> results;
  if (!brokers.ok()) {
    const std::string why(brokers.status().message());
    results.push_back(SkippedResult("freshness", "s", why));
    return results;
  }
  // First, on a thread of its own: threads that a store starts stay on the core of the thread that
  // opens it, and those of RocksDB live as long as the process.
  absl::Status read;
  std::thread([&] {
    PinThread(1);
    const auto world = UpdateWorld::Create({.directory = options.directory + "/reader",
                                            .brokers = *brokers,
                                            .model = "dim32",
                                            .dim = 32,
                                            .changes = options.quick ? 40'000U : 1'800'000U});
    read = world.ok() ? MeasureReader(**world, results) : world.status();
  }).join();
  HPS_RETURN_IF_ERROR(read);
  HPS_ASSIGN_OR_RETURN(Result freshness, MeasureFreshness(options, *brokers));
  results.push_back(std::move(freshness));
  return results;
}

}  // namespace hps::bench
