// The keys of each import, so that a repair knows which keys a damaged file held
// (docs/store_format.md, "Key lists").
//
// One column family holds the lists of all tables. A record has up to kKeyListChunkKeys ascending
// keys:
//
//   key     8 incarnation, big-endian; 8 first key, as in the rows
//   value   for each further key the difference to the previous one, as a variable-length integer
//           (7 bits per byte, low ones first); then 8 bytes XXH3-64 of key and value,
//           little-endian
//
// A key takes one byte if the keys are dense, and at most nine.
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

// Appends the record's keys. Returns false, and appends nothing, if the record is damaged.
bool DecodeKeyList(std::string_view key, std::string_view value, std::vector<Key>& keys);

struct KeyListPart {
  Key first = 0;
  Key last = 0;  // inclusive
  size_t keys_max = std::numeric_limits<size_t>::max();
};

// Appends the listed keys of the part in ascending order, at most keys_max. Errors: DATA_LOSS (the
// list is damaged; the keys before the damage have been appended), those of a failed read.
absl::Status ReadKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                         Incarnation incarnation, const KeyListPart& part, std::vector<Key>& keys);

// Returns the number of keys in the list; checks every record. Errors: those of ReadKeyList.
absl::StatusOr<uint64_t> CountKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                      Incarnation incarnation);

// Deletes a whole list. Damage in it is no error. Errors: those of a failed read or write.
absl::Status DeleteKeyList(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                           Incarnation incarnation);
// Deletes the lists of all incarnations but `known`.
absl::Status DeleteOtherKeyLists(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                 std::span<const Incarnation> known);

}  // namespace hps
