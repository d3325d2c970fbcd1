// Ingestion of an update stream: Kafka -> level 3 and level 2, through Store::Open, beside one bare
// consumer of the same records that discards them and beside writes of as many rows to level 3 from
// memory. The bound is the slower of the two.
//
// The three move the same bytes under the same settings: each begins with a store that was just
// imported and is on the disk, with records that are in the broker's page cache, in turns of
// changing order; each is measured from a tenth of the bytes to their end. None waits for a sync of
// the log at its end, as [store] sync = "interval" does not. Every row of the table is in level 2,
// so every change is made there, too.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/update/progress_clock.h"
#include "bench/update/update_world.h"
#include "update/stream_write.h"

namespace hps::bench {
namespace {

constexpr double kBytes = 250e6;
constexpr double kBytesQuick = 5e6;
constexpr int kRuns = 4;
// Of the measurement of memory: it is full within a fifth of the changes.
constexpr uint64_t kSmallWriteBufferBytes = uint64_t{32} << 20;
constexpr auto kLook = std::chrono::milliseconds(10);
constexpr double kSecondsMax = 600;

struct Ingestion {
  double bytes_per_second = 0;
  double rows_per_write = 0;
  uint64_t resident_bytes_early = 0;  // after a fifth of the changes
  uint64_t resident_bytes_late = 0;
};

absl::StatusOr<Ingestion> Ingest(const UpdateWorld& world, uint64_t write_buffer_bytes = 0) {
  const uint64_t changes = world.setting().changes;
  HPS_ASSIGN_OR_RETURN(const auto store, world.OpenStore(true, write_buffer_bytes));
  const Stopwatch limit;
  Ingestion ingestion;
  ProgressClock clock(changes);
  for (uint64_t rows = 0; rows < changes; std::this_thread::sleep_for(kLook)) {
    const UpdateStatistics updates = store->Statistics().updates;
    rows = updates.rows_upserted;
    clock.Note(rows);
    if (ingestion.resident_bytes_early == 0 && rows >= changes / 5)
      ingestion.resident_bytes_early = ResidentBytes();
    if (rows >= changes)
      ingestion.rows_per_write = static_cast<double>(rows) / static_cast<double>(updates.changes);
    if (limit.seconds() > kSecondsMax) {
      return absl::DeadlineExceededError(absl::StrCat("only ", rows, " of ", changes,
                                                      " changes were applied within ", kSecondsMax,
                                                      " s: ", updates.stream.problem));
    }
  }
  ingestion.bytes_per_second = clock.share_per_second() * world.change_bytes();
  ingestion.resident_bytes_late = ResidentBytes();
  return ingestion;
}

struct Measured {
  std::vector<double> ingestion;  // bytes per second
  std::vector<double> consumer;
  std::vector<double> writes;
  Ingestion last;
  Ingestion with_small_buffer;
};

absl::Status MeasureConsumer(UpdateWorld& world, Measured& measured) {
  HPS_ASSIGN_OR_RETURN(const double share, ReadAndDiscard(world.setting().brokers, world.topic()));
  measured.consumer.push_back(share * world.change_bytes());
  return absl::OkStatus();
}

absl::Status MeasureWrites(UpdateWorld& world, Measured& measured) {
  const size_t write_rows = std::min(kStreamWriteBytesMax / world.row_bytes(), kStreamWriteRowsMax);
  HPS_RETURN_IF_ERROR(world.MakeStore());
  HPS_ASSIGN_OR_RETURN(const double share, world.WriteChanges(write_rows));
  measured.writes.push_back(share * world.change_bytes());
  return absl::OkStatus();
}

absl::Status MeasureIngestion(UpdateWorld& world, Measured& measured) {
  HPS_RETURN_IF_ERROR(world.MakeStore());
  HPS_ASSIGN_OR_RETURN(measured.last, Ingest(world));
  measured.ingestion.push_back(measured.last.bytes_per_second);
  return absl::OkStatus();
}

absl::StatusOr<Measured> Measure(UpdateWorld& world) {
  Measured measured;
  // Once before, so that the records are in the broker's page cache each time.
  HPS_RETURN_IF_ERROR(ReadAndDiscard(world.setting().brokers, world.topic()).status());
  std::array phases = {MeasureConsumer, MeasureWrites, MeasureIngestion};
  for (int run = 0; run < kRuns; ++run) {
    for (const auto& phase : phases) HPS_RETURN_IF_ERROR(phase(world, measured));
    std::reverse(phases.begin(), phases.end());
  }
  HPS_RETURN_IF_ERROR(world.MakeStore());
  HPS_ASSIGN_OR_RETURN(measured.with_small_buffer, Ingest(world, kSmallWriteBufferBytes));
  return measured;
}

void AddResults(const UpdateWorld& world, Measured measured, std::vector<Result>& results) {
  const std::map<std::string, std::string> params = {
      {"dim", absl::StrCat(world.setting().dim)},
      {"changes", absl::StrCat(world.setting().changes)},
      {"rows", absl::StrCat(world.keys().size())},
      {"partitions", absl::StrCat(world.topic().begins.size())}};
  const double consumer = Median(measured.consumer) / 1e6;
  const double writes = Median(measured.writes) / 1e6;
  Result speed =
      MakeResult("ingest", "MB/s", Median(measured.ingestion) / 1e6, std::min(consumer, writes));
  speed.params = params;
  speed.params["clock"] = "10 to 100 % of the bytes";
  speed.params["consumer"] = "librdkafka, discards";
  speed.params["l3_writes"] = absl::StrCat("DurableTable::Write, ", kStreamWriteBytesMax >> 20,
                                           " MiB each, synced every sync_interval");
  speed.target = ">= 0.5";
  speed.runs = kRuns;
  speed.measured = {{"consumer_mb_per_second", consumer},
                    {"l3_writes_mb_per_second", writes},
                    {"rows_per_write", measured.last.rows_per_write}};
  results.push_back(std::move(speed));
  Result memory = MakeResult("ingest_memory", "bytes",
                             static_cast<double>(measured.with_small_buffer.resident_bytes_late),
                             static_cast<double>(measured.with_small_buffer.resident_bytes_early));
  memory.params = params;
  memory.params["write_buffer_bytes"] = absl::StrCat(kSmallWriteBufferBytes);
  memory.target = "<= 1.1";
  memory.runs = 1;
  results.push_back(std::move(memory));
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunIngestScenario(const Options& options) {
  const absl::StatusOr<std::string> brokers = FindBrokers();
  std::vector<Result> results;
  if (!brokers.ok()) {
    results.push_back(SkippedResult("ingest", "MB/s", std::string(brokers.status().message())));
    return results;
  }
  for (const uint32_t dim : {32U, 128U}) {
    const double bytes = options.quick ? kBytesQuick : kBytes;
    HPS_ASSIGN_OR_RETURN(
        const auto world,
        UpdateWorld::Create({.directory = options.directory + "/ingest",
                             .brokers = *brokers,
                             .model = absl::StrCat("dim", dim),
                             .dim = dim,
                             .changes = static_cast<uint64_t>(bytes / (sizeof(Key) + 4.0 * dim))}));
    HPS_ASSIGN_OR_RETURN(Measured measured, Measure(*world));
    AddResults(*world, std::move(measured), results);
  }
  return results;
}

}  // namespace hps::bench
