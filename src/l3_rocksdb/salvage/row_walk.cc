#include "l3_rocksdb/salvage/row_walk.h"

#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/salvage/entry_walk.h"
#include "l3_rocksdb/salvage/key_list.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

// A gap may be as long as the table. It is processed in parts; in each part, a source contributes
// at most this many keys.
constexpr size_t kPartKeysMax = 65536;

// Collects the keys of a part of a gap. `part` becomes shorter if a source has more keys than
// allowed.
class PartKeys final : public EntryVisitor {
 public:
  explicit PartKeys(BitsRange part) : part_(part) {}

  // Call this before the keys of each source. A source adds its keys in ascending order.
  void BeginSource() { source_count_ = 0; }
  absl::StatusOr<bool> OnEntry(uint64_t bits, std::string_view) override {
    keys_.push_back(bits);
    if (++source_count_ < kPartKeysMax) return true;
    part_.last = std::min(part_.last, bits);
    return false;
  }
  absl::Status OnGap(BitsRange, const rocksdb::Status&) override { return absl::OkStatus(); }

  BitsRange part() const { return part_; }
  // Returns the keys ascending and without duplicates.
  std::vector<uint64_t> TakeKeys() {
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    keys_.erase(std::upper_bound(keys_.begin(), keys_.end(), part_.last), keys_.end());
    return std::move(keys_);
  }

 private:
  BitsRange part_;
  size_t source_count_ = 0;
  std::vector<uint64_t> keys_;
};

class Walk final : public EntryVisitor {
 public:
  Walk(const Database::Pin& pin, RowVisitor& visitor)
      : pin_(pin),
        database_(pin.database()),
        handle_(pin.family().handle),
        what_(absl::StrCat("table '", pin.family().table.spec.name, "': reading rows")),
        visitor_(visitor) {}

  absl::Status Run();

 private:
  absl::StatusOr<bool> OnEntry(uint64_t bits, std::string_view value) override {
    HPS_RETURN_IF_ERROR(VisitRow(KeyOfOrderedBits(bits), value));
    return true;
  }
  absl::Status OnGap(BitsRange gap, const rocksdb::Status& why) override;
  uint64_t CountBytesBefore(uint64_t bits) const;
  absl::Status VisitRow(Key key, std::string_view value);
  absl::Status VisitKey(Key key);
  absl::Status AddListedKeys(PartKeys& keys);
  absl::Status AddKeysInMemory(PartKeys& keys);
  absl::Status AddKeysInFiles(PartKeys& keys);
  absl::Status AddKeysInFile(const rocksdb::SstFileMetaData& file, PartKeys& keys);

  const Database::Pin& pin_;
  Database& database_;
  rocksdb::ColumnFamilyHandle* const handle_;
  const std::string what_;
  RowVisitor& visitor_;
  const BytesBefore bytes_before_ = [this](uint64_t bits) { return CountBytesBefore(bits); };
};

uint64_t Walk::CountBytesBefore(uint64_t bits) const {
  char begin[kKeyBytes];
  char end[kKeyBytes];
  StoreBigEndian64(begin, 0);
  StoreBigEndian64(end, bits);
  const rocksdb::Range range({begin, kKeyBytes}, {end, kKeyBytes});
  uint64_t bytes = 0;
  // Fails only if neither files nor memtables are requested.
  database_.db()
      .GetApproximateSizes(rocksdb::SizeApproximationOptions(), handle_, &range, 1, &bytes)
      .PermitUncheckedError();
  return bytes;
}

absl::Status Walk::VisitRow(Key key, std::string_view value) {
  const TableRecord& table = pin_.family().table;
  if (CheckRow(table.incarnation, key, value, table.spec.row_bytes()) == RowState::kDamaged)
    return visitor_.OnLostRow(key, "the row's checksum is wrong");
  return visitor_.OnRow(key, value);
}

// Reads a key as a lookup does.
absl::Status Walk::VisitKey(Key key) {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  char bytes[kKeyBytes];
  EncodeKey(key, bytes);
  rocksdb::PinnableSlice value;
  rocksdb::Status got;
  for (int tries = 0; tries < 2; ++tries) {
    value.Reset();
    got = database_.db().Get(options, handle_, {bytes, kKeyBytes}, &value);
    if (got.ok()) return VisitRow(key, {value.data(), value.size()});
    if (got.IsNotFound()) return absl::OkStatus();
  }
  if (!IsDamage(got)) return FromRocksStatus(got, what_);
  return visitor_.OnLostRow(key, "the row can't be read");
}

absl::Status Walk::AddListedKeys(PartKeys& keys) {
  const Key first = KeyOfOrderedBits(keys.part().first);
  const Key last = KeyOfOrderedBits(keys.part().last);
  std::vector<Key> listed;
  const absl::Status read =
      ReadKeyList(database_.db(), database_.key_list(), pin_.family().table.incarnation,
                  {.first = first, .last = last, .keys_max = kPartKeysMax}, listed);
  if (!read.ok() && !absl::IsDataLoss(read)) return read;
  if (!read.ok()) HPS_RETURN_IF_ERROR(visitor_.OnDamagedList(first, last));
  keys.BeginSource();
  for (const Key key : listed) {
    HPS_ASSIGN_OR_RETURN(const bool proceed, keys.OnEntry(OrderedBits(key), {}));
    if (!proceed) break;
  }
  return absl::OkStatus();
}

// A reader has the rows of the WAL in memtables.
absl::Status Walk::AddKeysInMemory(PartKeys& keys) {
  keys.BeginSource();
  return WalkEntries(
      [this](rocksdb::ReadOptions options) {
        options.read_tier = rocksdb::kMemtableTier;
        return NewStoreIterator(database_.db(), handle_, options);
      },
      bytes_before_, keys.part(), what_, keys);
}

absl::Status Walk::AddKeysInFiles(PartKeys& keys) {
  rocksdb::ColumnFamilyMetaData family;
  database_.db().GetColumnFamilyMetaData(handle_, &family);
  for (const rocksdb::LevelMetaData& level : family.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files) {
      if (file.smallestkey.size() != kKeyBytes || file.largestkey.size() != kKeyBytes) continue;
      if (LoadBigEndian64(file.smallestkey.data()) > keys.part().last) continue;
      if (LoadBigEndian64(file.largestkey.data()) < keys.part().first) continue;
      HPS_RETURN_IF_ERROR(AddKeysInFile(file, keys));
    }
  }
  return absl::OkStatus();
}

absl::Status Walk::AddKeysInFile(const rocksdb::SstFileMetaData& file, PartKeys& keys) {
  rocksdb::Options options = database_.rocks_options().for_row_files();
  options.env = database_.env();
  rocksdb::SstFileReader reader(options);
  const rocksdb::Status opened = reader.Open(database_.path() + "/" + file.relative_filename);
  // "Invalid argument": the file's properties name something that RocksDB does not know.
  if (IsDamage(opened) || opened.IsInvalidArgument()) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromRocksStatus(opened, what_));
  keys.BeginSource();
  return WalkEntries(
      [&reader](const rocksdb::ReadOptions& read_options) {
        return std::unique_ptr<rocksdb::Iterator>(reader.NewIterator(read_options));
      },
      bytes_before_, keys.part(), what_, keys);
}

absl::Status Walk::OnGap(BitsRange gap, const rocksdb::Status& why) {
  HPS_RETURN_IF_ERROR(
      visitor_.OnGap(KeyOfOrderedBits(gap.first), KeyOfOrderedBits(gap.last), why.ToString()));
  for (uint64_t first = gap.first;;) {
    PartKeys keys({first, gap.last});
    HPS_RETURN_IF_ERROR(AddListedKeys(keys));
    HPS_RETURN_IF_ERROR(AddKeysInMemory(keys));
    HPS_RETURN_IF_ERROR(AddKeysInFiles(keys));
    const uint64_t last = keys.part().last;
    for (const uint64_t bits : keys.TakeKeys())
      HPS_RETURN_IF_ERROR(VisitKey(KeyOfOrderedBits(bits)));
    if (last == gap.last) return absl::OkStatus();
    first = last + 1;
  }
}

absl::Status Walk::Run() {
  return WalkEntries(
      [this](const rocksdb::ReadOptions& options) {
        return NewStoreIterator(database_.db(), handle_, options);
      },
      bytes_before_, {}, what_, *this);
}

}  // namespace

absl::Status WalkRows(const Database::Pin& pin, RowVisitor& visitor) {
  Walk walk(pin, visitor);
  return walk.Run();
}

}  // namespace hps
