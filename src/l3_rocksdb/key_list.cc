#include "l3_rocksdb/key_list.h"

#include <rocksdb/convenience.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/file_wise_iterator.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/status.h"

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

// False at the end of `bytes` or when the number has more than 64 bits.
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
                         Incarnation incarnation, Key first, Key last, std::vector<Key>& keys) {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;
  FileWiseIterator it(db, family, read_options);
  const std::string prefix = ListKey(incarnation, 0).substr(0, 8);
  // The chunk that begins at or before `first` may reach into the range.
  it.SeekForPrev(ListKey(incarnation, OrderedBits(first)));
  HPS_RETURN_IF_ERROR(FromReadStatus(it.status(), kWhat));
  if (!it.Valid() || !it.key().starts_with(prefix)) it.Seek(prefix);
  const std::string end = ListKey(incarnation, OrderedBits(last));
  std::vector<Key> chunk;
  for (; it.Valid() && it.key().starts_with(prefix) && it.key().compare(end) <= 0; it.Next()) {
    chunk.clear();
    if (!DecodeKeyList(ViewOf(it.key()), ViewOf(it.value()), chunk))
      return absl::DataLossError("a record of the key lists is damaged");
    for (Key key : chunk) {
      if (key >= first && key <= last) keys.push_back(key);
    }
  }
  return FromReadStatus(it.status(), kWhat);
}

absl::StatusOr<uint64_t> CountKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                      Incarnation incarnation) {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;
  FileWiseIterator it(db, family, read_options);
  const std::string prefix = ListKey(incarnation, 0).substr(0, 8);
  uint64_t count = 0;
  std::vector<Key> chunk;
  for (it.Seek(prefix); it.Valid() && it.key().starts_with(prefix); it.Next()) {
    chunk.clear();
    if (!DecodeKeyList(ViewOf(it.key()), ViewOf(it.value()), chunk))
      return absl::DataLossError("a record of the key lists is damaged");
    count += chunk.size();
  }
  HPS_RETURN_IF_ERROR(FromReadStatus(it.status(), kWhat));
  return count;
}

absl::Status DeleteKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                           Incarnation incarnation) {
  const std::string begin = ListKey(incarnation, 0);
  const std::string end = ListKey(incarnation + 1, 0);
  const rocksdb::Slice begin_slice(begin);
  const rocksdb::Slice end_slice(end);
  rocksdb::Status status =
      rocksdb::DeleteFilesInRange(&db, family, &begin_slice, &end_slice, false);
  std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions(), family));
  it->Seek(begin_slice);
  const bool some_left = it->Valid() && it->key().compare(end_slice) < 0;
  it.reset();
  if (status.ok() && some_left)
    status = db.DeleteRange(rocksdb::WriteOptions(), family, begin_slice, end_slice);
  return FromRocksStatus(status, "deleting a key list");
}

absl::Status DeleteOtherKeyLists(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                 std::span<const Incarnation> known) {
  std::vector<Incarnation> unknown;
  std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions(), family));
  it->SeekToFirst();
  while (it->Valid() && it->key().size() == kListKeyBytes) {
    const Incarnation incarnation = LoadBigEndian64(it->key().data());
    if (std::find(known.begin(), known.end(), incarnation) == known.end())
      unknown.push_back(incarnation);
    it->Seek(ListKey(incarnation + 1, 0));
  }
  it.reset();
  for (Incarnation incarnation : unknown)
    HPS_RETURN_IF_ERROR(DeleteKeyList(db, family, incarnation));
  return absl::OkStatus();
}

}  // namespace hps
