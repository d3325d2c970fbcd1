#include "hps/publish.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/macros.h"
#include "hps/update_producer.h"
#include "import/row_source.h"

namespace hps {
namespace {

constexpr size_t kChunkKeys = 4096;
constexpr size_t kChunkRowBytes = size_t{4} << 20;
// Chunks of a limited rate are small, so that the rate is even.
constexpr uint64_t kChunksPerSecond = 50;
constexpr auto kProgressEvery = std::chrono::milliseconds(200);

size_t ChunkKeys(const PublishRequest& request, const TableSpec& spec) {
  size_t keys = std::min(kChunkKeys, kChunkRowBytes / spec.row_bytes());
  if (request.rows_per_second_max > 0) {
    keys = std::min<size_t>(keys, request.rows_per_second_max / kChunksPerSecond);
  }
  return std::max<size_t>(keys, 1);
}

// Waits until `row_count` rows are allowed since `begin`.
void Pace(const PublishRequest& request, TimePoint begin, uint64_t row_count) {
  if (request.rows_per_second_max == 0) return;
  const double seconds =
      static_cast<double>(row_count) / static_cast<double>(request.rows_per_second_max);
  Latch never(1);
  never.WaitUntil(begin +
                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

absl::Status PublishAll(const PublishRequest& request, RowSource& source,
                        UpdateProducer& producer) {
  const TimePoint begin = RealClock().Now();
  TimePoint next_progress = begin;
  const size_t chunk_keys = ChunkKeys(request, source.spec());
  std::vector<Key> keys;
  std::vector<std::byte> rows;
  for (uint64_t done = 0; done < source.row_count(); done += keys.size()) {
    const size_t count = std::min<uint64_t>(chunk_keys, source.row_count() - done);
    Pace(request, begin, done);
    HPS_RETURN_IF_ERROR(source.Read(done, count, &keys, &rows));
    HPS_RETURN_IF_ERROR(request.is_delete ? producer.Delete(keys, request.timeout)
                                          : producer.Upsert(keys, rows, request.timeout));
    if (!request.progress || RealClock().Now() < next_progress) continue;
    next_progress = RealClock().Now() + kProgressEvery;
    request.progress({.step = "publishing",
                      .done = producer.Statistics().rows_delivered,
                      .total = source.row_count()});
  }
  return producer.Flush(2 * request.timeout);
}

}  // namespace

absl::StatusOr<PublishReport> PublishTable(const PublishRequest& request) {
  const TimePoint begin = RealClock().Now();
  HPS_ASSIGN_OR_RETURN(RowSource source, RowSource::Open({.name = request.table,
                                                          .from = request.from,
                                                          .format = request.format,
                                                          .dim = request.dim,
                                                          .dtype = request.dtype,
                                                          .tensor = request.tensor},
                                                         request.is_delete));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<UpdateProducer> producer,
                       UpdateProducer::Create({.brokers = request.brokers,
                                               .kafka = request.kafka,
                                               .table = source.spec(),
                                               .delivery_timeout = request.timeout,
                                               .connect_timeout = request.timeout}));
  HPS_RETURN_IF_ERROR(PublishAll(request, source, *producer));
  const UpdateProducerStatistics statistics = producer->Statistics();
  return PublishReport{.rows = statistics.rows_delivered,
                       .batches = statistics.messages_delivered,
                       .bytes = statistics.bytes_delivered,
                       .seconds = std::chrono::duration<double>(RealClock().Now() - begin).count()};
}

}  // namespace hps
