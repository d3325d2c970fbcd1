// The keys of each import, so that a repair can tell which keys a damaged file held
// (docs/store_format.md, "Key lists").
//
// One column family for all tables. A record holds up to kKeyListChunkKeys ascending keys:
//
//   key     8 incarnation, big-endian; 8 first key, as in the rows
//   value   for each further key the difference to the one before, as a variable-length integer (7
//           bits a byte, low ones first); then 8 bytes XXH3-64 of key and value, little-endian
//
// A key costs one byte where they are dense and at most nine.
#pragma once

#include <rocksdb/db.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kKeyListChunkKeys = 4096;

struct KeyListRecord {
  std::string key;
  std::string value;
};

// REQUIRES: 0 < keys.size() <= kKeyListChunkKeys, strictly ascending.
KeyListRecord EncodeKeyList(Incarnation incarnation, std::span<const Key> keys);

// Appends the record's keys. False when it is damaged; nothing has been appended then.
bool DecodeKeyList(std::string_view key, std::string_view value, std::vector<Key>& keys);

struct KeyListPart {
  Key first = 0;
  Key last = 0;  // included
  size_t keys_max = std::numeric_limits<size_t>::max();
};

// Appends the listed keys of the part, ascending: the first keys_max where it has more. Errors:
// DATA_LOSS (the list is damaged; the keys before the damage have been appended), those of a failed
// read.
absl::Status ReadKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                         Incarnation incarnation, const KeyListPart& part, std::vector<Key>& keys);

// How many keys the list has, every record checked. Errors: those of ReadKeyList.
absl::StatusOr<uint64_t> CountKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                      Incarnation incarnation);

// Lists are deleted whole, and the damage that they may have is no error. Errors: those of a failed
// read or write.
absl::Status DeleteKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                           Incarnation incarnation);
// Deletes the lists of all incarnations but `known`.
absl::Status DeleteOtherKeyLists(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                 std::span<const Incarnation> known);

}  // namespace hps
