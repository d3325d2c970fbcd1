#include "bench/update/update_world.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/macros.h"
#include "bench/scratch.h"
#include "bench/update/progress_clock.h"
#include "hps/update_producer.h"
#include "import/generate.h"
#include "l3_rocksdb/rocks_store.h"

namespace hps::bench {
namespace {

constexpr uint64_t kChangesPerRow = 4;
constexpr uint64_t kL2Bytes = uint64_t{512} << 20;
constexpr auto kPublishTimeout = std::chrono::seconds(60);
constexpr size_t kPublishRows = 4096;

int64_t UnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

absl::StatusOr<std::string> FindBrokers() {
  HPS_RETURN_IF_ERROR(CheckKafka());
  const char* const brokers = std::getenv(kBrokersVariable);
  if (brokers != nullptr && *brokers != '\0') return std::string(brokers);
  return absl::NotFoundError(absl::StrCat(
      kBrokersVariable, " is not set: run tools/bench_updates.py, which starts a Kafka broker"));
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class UpdateWorld::Changes {
 public:
  Changes(const UpdateWorld& world, size_t batch_rows)
      : table_keys_(world.keys_),
        left_(world.setting_.changes),
        keys_(batch_rows),
        rows_(batch_rows * world.row_bytes()) {
    // Random rows: neither Kafka nor RocksDB can compress them.
    for (std::byte& byte : rows_) byte = static_cast<std::byte>(random_());
  }

  // The keys of the next batch; empty at the end.
  std::span<const Key> Next() {
    const size_t count = std::min<uint64_t>(keys_.size(), left_);
    left_ -= count;
    for (Key& key : keys_) key = table_keys_[random_() % table_keys_.size()];
    return std::span(keys_).first(count);
  }
  std::span<std::byte> rows() { return rows_; }  // of a whole batch

 private:
  const std::span<const Key> table_keys_;
  uint64_t left_;
  std::mt19937_64 random_{1};
  std::vector<Key> keys_;
  std::vector<std::byte> rows_;
};

absl::StatusOr<std::unique_ptr<UpdateWorld>> UpdateWorld::Create(const Setting& setting) {
  auto world = std::unique_ptr<UpdateWorld>(new UpdateWorld(setting));
  HPS_RETURN_IF_ERROR(world->MakeTable());
  HPS_RETURN_IF_ERROR(world->Publish());
  return world;
}

UpdateWorld::~UpdateWorld() { RemoveScratch(setting_.directory); }

absl::Status UpdateWorld::MakeTable() {
  RemoveScratch(setting_.directory);
  HPS_RETURN_IF_ERROR(MakeScratch(setting_.directory));
  const std::string tables = setting_.directory + "/tables";
  HPS_RETURN_IF_ERROR(GenerateTables({.out = tables,
                                      .tables = 1,
                                      .rows = setting_.changes / kChangesPerRow,
                                      .dim = setting_.dim,
                                      .requests = 1}));
  std::ifstream file(tables + "/t0/key", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  keys_.resize(bytes.size() / sizeof(Key));
  std::memcpy(keys_.data(), bytes.data(), keys_.size() * sizeof(Key));
  if (keys_.empty()) return absl::DataLossError("no keys in " + tables);
  return absl::OkStatus();
}

absl::Status UpdateWorld::Publish() {
  topic_.topic = "hps_et." + setting_.model + ".t0";
  HPS_ASSIGN_OR_RETURN(topic_.begins, TopicEnds(setting_.brokers, topic_.topic));
  published_at_ms_ = UnixMs();
  UpdateProducerOptions options;
  options.brokers = setting_.brokers;
  options.table.name = table();
  options.table.dim = setting_.dim;
  HPS_ASSIGN_OR_RETURN(const auto producer, UpdateProducer::Create(options));
  Changes changes(*this, kPublishRows);
  for (auto keys = changes.Next(); !keys.empty(); keys = changes.Next()) {
    const auto rows = changes.rows().first(keys.size() * row_bytes());
    HPS_RETURN_IF_ERROR(producer->Upsert(keys, rows, kPublishTimeout));
  }
  HPS_RETURN_IF_ERROR(producer->Flush(kPublishTimeout));
  HPS_ASSIGN_OR_RETURN(topic_.ends, TopicEnds(setting_.brokers, topic_.topic));
  return absl::OkStatus();
}

Config UpdateWorld::MakeConfig(bool with_stream, uint64_t write_buffer_bytes) const {
  Config config;
  config.store.path = setting_.directory + "/store";
  if (write_buffer_bytes > 0) config.store.write_buffer_bytes = write_buffer_bytes;
  config.l2.bytes_max = kL2Bytes;
  config.l2.preload = 1.0;
  config.l1.devices_auto = false;
  if (with_stream) config.update.brokers = absl::StrSplit(setting_.brokers, ',');
  return config;
}

absl::Status UpdateWorld::MakeStore() {
  RemoveScratch(setting_.directory + "/store");
  HPS_RETURN_IF_ERROR(
      ImportTables(MakeConfig(false),
                   {.name = setting_.model,
                    .from = setting_.directory + "/tables",
                    .update_start = UpdateStart{UpdateStart::Kind::kTime, published_at_ms_}})
          .status());
  sync();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> UpdateWorld::OpenStore(bool with_stream,
                                                              uint64_t write_buffer_bytes) const {
  return Store::Open(MakeConfig(with_stream, write_buffer_bytes), OpenMode::kReadWrite);
}

absl::StatusOr<double> UpdateWorld::WriteChanges(size_t write_rows) const {
  HPS_ASSIGN_OR_RETURN(const auto store, OpenRocksStore({.config = MakeConfig(false).store,
                                                         .mode = OpenMode::kReadWrite}));
  HPS_ASSIGN_OR_RETURN(const auto table, store->OpenTable(this->table()));
  Changes changes(*this, write_rows);
  StreamPosition position;
  std::vector<Version> versions(write_rows);
  ProgressClock clock(setting_.changes);
  uint64_t written = 0;
  for (auto keys = changes.Next(); !keys.empty(); keys = changes.Next()) {
    ++position.offset;
    std::fill(versions.begin(), versions.end(), VersionAt(position.generation, position.offset));
    DurableWrite write;
    write.positions = {&position, 1};
    write.upserts = {.keys = keys,
                     .rows = {.data = changes.rows().data(),
                              .row_count = keys.size(),
                              .row_bytes = row_bytes(),
                              .stride_bytes = row_bytes()},
                     .versions = std::span(versions).first(keys.size())};
    HPS_RETURN_IF_ERROR(table->Write(write));
    written += keys.size();
    clock.Note(written);
  }
  return clock.share_per_second();
}

}  // namespace hps::bench
