#include "l3_rocksdb/salvage/key_list.h"

#include <rocksdb/convenience.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr size_t kListKeyBytes = 16;
constexpr char kWhat[] = "reading the key lists";

std::string ListKey(Incarnation incarnation, uint64_t ordered_bits) {
  char bytes[kListKeyBytes];
  StoreBigEndian64(bytes, incarnation);
  StoreBigEndian64(bytes + 8, ordered_bits);
  return std::string(bytes, sizeof(bytes));
}

std::string_view ViewOf(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

uint64_t Checksum(std::string_view key, std::string_view differences) {
  std::string covered(key);
  covered.append(differences);
  return XXH3_64bits(covered.data(), covered.size());
}

void AppendVariableLength(std::string& to, uint64_t value) {
  while (value >= 0x80) {
    to.push_back(static_cast<char>(0x80 | (value & 0x7f)));
    value >>= 7;
  }
  to.push_back(static_cast<char>(value));
}

// Returns false at the end of `bytes`, or if the number has more than 64 bits.
bool TakeVariableLength(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// True if a list that was not deleted begins in [begin, end), or if damage hides the answer.
absl::StatusOr<bool> AnyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                             const std::string& begin, const std::string& end) {
  const rocksdb::Slice end_slice(end);
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.iterate_upper_bound = &end_slice;
  // NewStoreIterator would also show deleted lists.
  const std::unique_ptr<rocksdb::Iterator> left(db.NewIterator(options, family));
  left->Seek(begin);
  if (left->Valid()) return true;
  // This iterator does not report all damage. A Get in each file does, unless its key was deleted;
  // then it reads no block.
  rocksdb::ColumnFamilyMetaData files;
  db.GetColumnFamilyMetaData(family, &files);
  for (const rocksdb::LevelMetaData& level : files.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files) {
      const std::string first = std::max(begin, file.smallestkey);
      if (file.largestkey < begin || first >= end) continue;
      std::string value;
      const rocksdb::Status got = db.Get(options, family, first, &value);
      if (got.IsNotFound()) continue;
      if (got.ok() || IsDamage(got)) return true;
      HPS_RETURN_IF_ERROR(FromRocksStatus(got, kWhat));
    }
  }
  return false;
}

// Deletes the lists in [begin, end), including unreadable ones.
absl::Status DeleteLists(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                         const std::string& begin, const std::string& end) {
  const rocksdb::Slice begin_slice(begin);
  const rocksdb::Slice end_slice(end);
  if (begin >= end) return absl::OkStatus();
  constexpr char kDeleting[] = "deleting key lists";
  HPS_RETURN_IF_ERROR(FromRocksStatus(
      rocksdb::DeleteFilesInRange(&db, family, &begin_slice, &end_slice, false), kDeleting));
  HPS_ASSIGN_OR_RETURN(const bool any, AnyList(db, family, begin, end));
  if (!any) return absl::OkStatus();
  return FromRocksStatus(db.DeleteRange(rocksdb::WriteOptions(), family, begin_slice, end_slice),
                         kDeleting);
}

// The bounds keep reads out of the neighbouring lists, which may be damaged.
class ListBounds {
 public:
  explicit ListBounds(Incarnation incarnation)
      : begin_(ListKey(incarnation, 0)), end_(ListKey(incarnation + 1, 0)) {}
  ListBounds(const ListBounds&) = delete;
  ListBounds& operator=(const ListBounds&) = delete;

  // REQUIRES: this object outlives the iterator.
  rocksdb::ReadOptions Options() const {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.iterate_lower_bound = &begin_slice_;
    options.iterate_upper_bound = &end_slice_;
    return options;
  }

 private:
  const std::string begin_;
  const std::string end_;
  const rocksdb::Slice begin_slice_{begin_};
  const rocksdb::Slice end_slice_{end_};
};

// Returns an iterator at the chunk that may contain `first`: the last chunk that begins at or
// before it, or else the first chunk of the list. Searching before the first chunk of the list
// reads a neighbour's file; damage there is not damage of this list.
absl::StatusOr<std::unique_ptr<rocksdb::Iterator>> IterateFrom(rocksdb::DB& db,
                                                               rocksdb::ColumnFamilyHandle* family,
                                                               const rocksdb::ReadOptions& options,
                                                               const std::string& first) {
  std::unique_ptr<rocksdb::Iterator> it = NewStoreIterator(db, family, options);
  it->SeekForPrev(first);
  if (it->Valid()) return it;
  const absl::Status sought = FromReadStatus(it->status(), kWhat);
  if (!sought.ok() && !absl::IsDataLoss(sought)) return sought;
  it = NewStoreIterator(db, family, options);
  it->SeekToFirst();
  if (!sought.ok() && it->Valid() && it->key().compare(first) < 0) return sought;
  return it;
}

}  // namespace

KeyListRecord EncodeKeyList(Incarnation incarnation, std::span<const Key> keys) {
  KeyListRecord record;
  record.key = ListKey(incarnation, OrderedBits(keys.front()));
  for (size_t i = 1; i < keys.size(); ++i)
    AppendVariableLength(record.value, OrderedBits(keys[i]) - OrderedBits(keys[i - 1]));
  char checksum[8];
  StoreLittleEndian<uint64_t>(checksum, Checksum(record.key, record.value));
  record.value.append(checksum, sizeof(checksum));
  return record;
}

bool DecodeKeyList(std::string_view key, std::string_view value, std::vector<Key>& keys) {
  if (key.size() != kListKeyBytes || value.size() < sizeof(uint64_t)) return false;
  std::string_view differences = value.substr(0, value.size() - sizeof(uint64_t));
  const uint64_t stored = LoadLittleEndian<uint64_t>(value.data() + differences.size());
  if (stored != Checksum(key, differences)) return false;
  const size_t size_before = keys.size();
  uint64_t bits = LoadBigEndian64(key.data() + 8);
  keys.push_back(KeyOfOrderedBits(bits));
  while (!differences.empty()) {
    uint64_t difference = 0;
    if (!TakeVariableLength(differences, difference)) {
      keys.resize(size_before);
      return false;
    }
    bits += difference;
    keys.push_back(KeyOfOrderedBits(bits));
  }
  return true;
}

absl::Status ReadKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                         Incarnation incarnation, const KeyListPart& part, std::vector<Key>& keys) {
  const ListBounds bounds(incarnation);
  HPS_ASSIGN_OR_RETURN(
      const std::unique_ptr<rocksdb::Iterator> it,
      IterateFrom(db, family, bounds.Options(), ListKey(incarnation, OrderedBits(part.first))));
  const std::string end = ListKey(incarnation, OrderedBits(part.last));
  const size_t size_before = keys.size();
  std::vector<Key> chunk;
  for (; it->Valid() && it->key().compare(end) <= 0; it->Next()) {
    chunk.clear();
    if (!DecodeKeyList(ViewOf(it->key()), ViewOf(it->value()), chunk))
      return absl::DataLossError("a record of the key lists is damaged");
    for (Key key : chunk) {
      if (key < part.first || key > part.last) continue;
      if (keys.size() - size_before == part.keys_max) return absl::OkStatus();
      keys.push_back(key);
    }
  }
  return FromReadStatus(it->status(), kWhat);
}

absl::StatusOr<uint64_t> CountKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                      Incarnation incarnation) {
  const ListBounds bounds(incarnation);
  const std::unique_ptr<rocksdb::Iterator> it = NewStoreIterator(db, family, bounds.Options());
  uint64_t count = 0;
  std::vector<Key> chunk;
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    chunk.clear();
    if (!DecodeKeyList(ViewOf(it->key()), ViewOf(it->value()), chunk))
      return absl::DataLossError("a record of the key lists is damaged");
    count += chunk.size();
  }
  HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), kWhat));
  return count;
}

absl::Status DeleteKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                           Incarnation incarnation) {
  return DeleteLists(db, family, ListKey(incarnation, 0), ListKey(incarnation + 1, 0));
}

absl::Status DeleteOtherKeyLists(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                 std::span<const Incarnation> known) {
  std::vector<Incarnation> kept(known.begin(), known.end());
  std::sort(kept.begin(), kept.end());
  std::string begin;
  absl::Status deleted;
  for (const Incarnation incarnation : kept) {
    deleted.Update(DeleteLists(db, family, begin, ListKey(incarnation, 0)));
    begin = ListKey(incarnation + 1, 0);
  }
  deleted.Update(DeleteLists(db, family, begin, std::string(kListKeyBytes, '\xff')));
  return deleted;
}

}  // namespace hps
