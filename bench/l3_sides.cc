#include "bench/l3_sides.h"

#include <malloc.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/scratch.h"
#include "l3_pages/page_format.h"
#include "l3_pages/page_table.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "testing/fakes/stamped_row.h"

namespace hps::bench {
namespace {

constexpr char kTableName[] = "bench/table";
constexpr size_t kCallKeys = 8192;
constexpr Key kKeyStep = 7;  // so that neighbours of keys are absent
constexpr uint64_t kStampTable = 1;
constexpr Version kChangedVersion = 1;
constexpr uint64_t kChangeSeed = 0x5bd1e9955bd1e995;

// Calls use(keys, rows) with all rows of the table as imported, in order.
template <typename Use>
absl::Status ForEachCall(const L3Shape& shape, Use use) {
  const size_t row_bytes = shape.row_bytes();
  std::vector<Key> keys;
  std::vector<std::byte> bytes(kCallKeys * row_bytes);
  for (uint64_t begin = 0; begin < shape.row_count(); begin += kCallKeys) {
    keys.clear();
    for (uint64_t i = begin; i < std::min(begin + kCallKeys, shape.row_count()); ++i) {
      const Key key = static_cast<Key>(i) * kKeyStep;
      StampedRow::Write(kStampTable, key, 0, {bytes.data() + keys.size() * row_bytes, row_bytes});
      keys.push_back(key);
    }
    HPS_RETURN_IF_ERROR(use(keys, HostRows{bytes.data(), keys.size(), row_bytes, row_bytes}));
  }
  return absl::OkStatus();
}

size_t LargestBatch(const KeyBatches& batches) {
  size_t largest = 0;
  for (const std::vector<Key>& keys : batches) largest = std::max(largest, keys.size());
  return largest;
}

double KeyCount(const KeyBatches& batches) {
  size_t count = 0;
  for (const std::vector<Key>& keys : batches) count += keys.size();
  return static_cast<double>(count);
}

// Bytes that the process has allocated.
size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

uint64_t L3Shape::row_count() const {
  const PageShape shape = PageShape::Of(row_bytes());
  return table_bytes / shape.page_bytes * shape.rows_per_page;
}

KeyBatches RandomBatches(const L3Shape& shape, size_t batch_keys, uint64_t key_count,
                         uint64_t seed) {
  std::mt19937_64 random(seed);
  KeyBatches batches(std::max<uint64_t>(key_count / batch_keys, 1));
  for (std::vector<Key>& keys : batches) {
    keys.resize(batch_keys);
    for (Key& key : keys) key = static_cast<Key>(random() % shape.row_count()) * kKeyStep;
    std::sort(keys.begin(), keys.end());
  }
  return batches;
}

StoreSide::StoreSide(std::string directory, const L3Shape& shape, uint32_t changed_per_mille)
    : directory_(std::move(directory)), shape_(shape), changed_per_mille_(changed_per_mille) {}

StoreSide::~StoreSide() {
  table_.reset();
  RemoveScratch(directory_);
}

bool StoreSide::IsChanged(Key key) const {
  return HashToRange(HashKey(key, kChangeSeed), 1000) < changed_per_mille_;
}

RocksStoreOptions StoreSide::StoreOptions() const {
  RocksStoreOptions options;
  options.config.path = directory_ + "/store";
  if (shape_.cold) options.config.cache_bytes = shape_.table_bytes / 64;
  options.direct_reads = shape_.cold;
  options.mode = OpenMode::kCreate;
  return options;
}

absl::Status StoreSide::Import() {
  HPS_ASSIGN_OR_RETURN(const auto store, OpenRocksStore(StoreOptions()));
  TableSpec spec;
  spec.name = kTableName;
  spec.dim = shape_.dim;
  HPS_ASSIGN_OR_RETURN(const auto import, store->BeginImport({&spec, 1}));
  HPS_RETURN_IF_ERROR(ForEachCall(shape_, [&import](std::span<const Key> keys, HostRows rows) {
    return import->Add(0, 0, keys, rows);
  }));
  HPS_RETURN_IF_ERROR(import->Commit().status());
  HPS_ASSIGN_OR_RETURN(table_, store->OpenTable(kTableName));
  return absl::OkStatus();
}

absl::Status StoreSide::Change() {
  const size_t row_bytes = shape_.row_bytes();
  std::vector<Key> changed;
  std::vector<std::byte> bytes(kCallKeys * row_bytes);
  const std::vector<Version> versions(kCallKeys, kChangedVersion);
  return ForEachCall(shape_, [&](std::span<const Key> keys, HostRows) -> absl::Status {
    changed.clear();
    for (const Key key : keys) {
      if (!IsChanged(key)) continue;
      StampedRow::Write(kStampTable, key, kChangedVersion,
                        {bytes.data() + changed.size() * row_bytes, row_bytes});
      changed.push_back(key);
    }
    if (changed.empty()) return absl::OkStatus();
    DurableWrite write;
    write.upserts.keys = changed;
    write.upserts.rows = {bytes.data(), changed.size(), row_bytes, row_bytes};
    write.upserts.versions = std::span(versions).first(changed.size());
    return table_->Write(write);
  });
}

absl::Status StoreSide::Prepare() {
  HPS_RETURN_IF_ERROR(MakeScratch(directory_));
  HPS_RETURN_IF_ERROR(Import());
  HPS_RETURN_IF_ERROR(Change());
  table_.reset();
  // A store that is opened has its changes in files, none in memory.
  HPS_ASSIGN_OR_RETURN(const auto store, OpenRocksStore(StoreOptions()));
  HPS_ASSIGN_OR_RETURN(table_, store->OpenTable(kTableName));
  ::sync();  // so that reads do not wait for these writes
  return absl::OkStatus();
}

absl::Status StoreSide::Warm() {
  const size_t row_bytes = shape_.row_bytes();
  std::vector<std::byte> bytes(kCallKeys * row_bytes);
  std::vector<FetchOutcome> outcomes(kCallKeys);
  return ForEachCall(shape_, [&](std::span<const Key> keys, HostRows) -> absl::Status {
    const FetchBatch batch{keys,
                           {bytes.data(), keys.size(), row_bytes, row_bytes},
                           std::span(outcomes).first(keys.size())};
    return table_->Fetch(batch, kNoDeadline).status();
  });
}

absl::StatusOr<double> StoreSide::Fetch(const KeyBatches& batches) const {
  const size_t row_bytes = shape_.row_bytes();
  const size_t largest = LargestBatch(batches);
  std::vector<std::byte> bytes(largest * row_bytes);
  std::vector<FetchOutcome> outcomes(largest);
  std::vector<Version> versions(largest);
  uint64_t hits = 0;
  const Stopwatch stopwatch;
  for (const std::vector<Key>& keys : batches) {
    HPS_ASSIGN_OR_RETURN(const FetchCounts counts,
                         table_->Fetch({keys,
                                        {bytes.data(), keys.size(), row_bytes, row_bytes},
                                        std::span(outcomes).first(keys.size()),
                                        std::span(versions).first(keys.size())},
                                       kNoDeadline));
    hits += counts.hits;
    KeepAlive(bytes);
  }
  const double seconds = stopwatch.seconds();
  const double key_count = KeyCount(batches);
  if (static_cast<double>(hits) != key_count)
    return absl::InternalError("bench l3: the store has not all rows");
  const std::vector<Key>& last = batches.back();
  for (size_t i = 0; i < last.size(); ++i) {
    const Version version = IsChanged(last[i]) ? kChangedVersion : 0;
    if (versions[i] != version || !StampedRow::Matches(kStampTable, last[i], version,
                                                       {bytes.data() + i * row_bytes, row_bytes})) {
      return absl::InternalError(absl::StrCat("bench l3: the row of key ", last[i], " is wrong"));
    }
  }
  return key_count / seconds;
}

std::string StoreSide::page_file() const {
  return PageFilePath(StoreOptions().config.path, incarnation(), 0);
}

absl::StatusOr<double> StoreSide::MeasureIndexMemory() const {
  PageTable::Options options;
  options.incarnation = incarnation();
  options.row_bytes = shape_.row_bytes();
  options.direct = true;
  const uint64_t row_count = shape_.row_count();
  options.parts = {{page_file(), row_count, 0, static_cast<Key>(row_count - 1) * kKeyStep}};
  HPS_ASSIGN_OR_RETURN(const auto reader, PageReader::Create({}));
  const size_t before = AllocatedBytes();
  HPS_ASSIGN_OR_RETURN(const auto table, PageTable::Open(options, *reader));
  return static_cast<double>(AllocatedBytes()) - static_cast<double>(before);
}

RocksSide::RocksSide(std::string directory, const L3Shape& shape)
    : directory_(std::move(directory)), shape_(shape) {}

RocksSide::~RocksSide() {
  db_.reset();
  RemoveScratch(directory_);
}

absl::Status RocksSide::Prepare(Incarnation incarnation) {
  HPS_RETURN_IF_ERROR(MakeScratch(directory_ + "/db"));
  RocksStoreOptions store;
  store.direct_reads = shape_.cold;
  if (shape_.cold) store.config.cache_bytes = shape_.table_bytes / 64;
  // RocksOptions takes a quarter, because a store also caches pages. This side caches none.
  store.config.cache_bytes *= 4;
  rocksdb::Options rocks = RocksOptions(store).for_one_file();
  if (shape_.cold) {
    // Filters and indexes stay in memory, as the index of a page file does.
    auto table = *rocks.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
    table.cache_index_and_filter_blocks = false;
    rocks.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  }
  rocks.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(rocksdb::DB::Open(rocks, directory_ + "/db", &db), "plain database"));
  db_.reset(db);
  const std::string file = directory_ + "/rows.sst";
  const size_t row_bytes = shape_.row_bytes();
  std::string value(row_bytes + kRowTailBytes, '\0');
  char key_bytes[kKeyBytes];
  for (uint64_t begin = 0; begin < shape_.row_count();) {
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), rocks);
    HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Open(file), file));
    for (; begin < shape_.row_count() && writer.FileSize() < rocks.target_file_size_base; ++begin) {
      const Key key = static_cast<Key>(begin) * kKeyStep;
      EncodeKey(key, key_bytes);
      StampedRow::Write(kStampTable, key, 0,
                        std::as_writable_bytes(std::span(value)).first(row_bytes));
      FinishRow(incarnation, key, 0, row_bytes, value.data() + row_bytes);
      HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Put({key_bytes, kKeyBytes}, value), file));
    }
    HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Finish(), file));
    rocksdb::IngestExternalFileOptions ingestion;
    ingestion.move_files = true;
    ingestion.write_global_seqno = false;
    HPS_RETURN_IF_ERROR(FromRocksStatus(db_->IngestExternalFile({file}, ingestion), file));
  }
  ::sync();
  return absl::OkStatus();
}

absl::Status RocksSide::Warm() {
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) KeepAlive(it->value());
  return FromRocksStatus(it->status(), "plain database");
}

absl::StatusOr<double> RocksSide::Fetch(const KeyBatches& batches) const {
  const size_t row_bytes = shape_.row_bytes();
  std::vector<std::byte> bytes(LargestBatch(batches) * row_bytes);
  std::vector<char> key_bytes(kFetchPieceKeysMax * kKeyBytes);
  std::array<rocksdb::Slice, kFetchPieceKeysMax> slices;
  std::array<rocksdb::PinnableSlice, kFetchPieceKeysMax> values;
  std::array<rocksdb::Status, kFetchPieceKeysMax> statuses;
  const rocksdb::ReadOptions read_options;
  const Stopwatch stopwatch;
  for (const std::vector<Key>& keys : batches) {
    for (size_t begin = 0; begin < keys.size(); begin += kFetchPieceKeysMax) {
      const size_t count = std::min(kFetchPieceKeysMax, keys.size() - begin);
      for (size_t i = 0; i < count; ++i) {
        char* const key = key_bytes.data() + i * kKeyBytes;
        EncodeKey(keys[begin + i], key);
        slices[i] = rocksdb::Slice(key, kKeyBytes);
      }
      db_->MultiGet(read_options, db_->DefaultColumnFamily(), count, slices.data(), values.data(),
                    statuses.data(), true);
      for (size_t i = 0; i < count; ++i) {
        HPS_RETURN_IF_ERROR(FromRocksStatus(statuses[i], "plain database"));
        std::memcpy(bytes.data() + (begin + i) * row_bytes, values[i].data(), row_bytes);
        values[i].Reset();
      }
    }
    KeepAlive(bytes);
  }
  return KeyCount(batches) / stopwatch.seconds();
}

absl::StatusOr<std::unique_ptr<DiskSide>> DiskSide::Open(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(auto reader, PageReader::Create({}));
  HPS_ASSIGN_OR_RETURN(PageFileHandle file, PageFileHandle::OpenForReading(path, true));
  HPS_ASSIGN_OR_RETURN(const uint64_t bytes, file.Size());
  return std::unique_ptr<DiskSide>(
      new DiskSide(std::move(reader), std::move(file), bytes / kPageBlockBytes));
}

absl::StatusOr<double> DiskSide::Read(uint64_t read_count, uint64_t seed) const {
  HPS_ASSIGN_OR_RETURN(const PageReader::Lease lease, reader_->Acquire(kNoDeadline));
  PageQueue& queue = lease.queue();
  std::mt19937_64 random(seed);
  uint64_t begun = 0;
  const auto begin = [&](size_t slot) {
    queue.Begin({file_.descriptor(), random() % block_count_ * kPageBlockBytes,
                 lease.bytes().subspan(slot * kPageBlockBytes, kPageBlockBytes), slot});
    ++begun;
  };
  const Stopwatch stopwatch;
  for (size_t slot = 0; slot < kPageSlotsMax; ++slot) begin(slot);
  std::array<EndedPageRead, kPageSlotsMax> ended;
  while (queue.in_flight() > 0) {
    HPS_ASSIGN_OR_RETURN(const size_t count, queue.Await(ended, kNoDeadline));
    for (size_t i = 0; i < count; ++i) {
      if (ended[i].result != static_cast<int>(kPageBlockBytes))
        return absl::UnavailableError("bench l3: the disk can't read a block");
      if (begun < read_count) begin(ended[i].slot);
    }
  }
  return static_cast<double>(begun) / stopwatch.seconds();
}

}  // namespace hps::bench
