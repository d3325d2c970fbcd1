// How a row is stored in Redis (docs/redis.md, "What is stored").
//
//   version   8 bytes, big-endian, so that a script can compare it
//   checksum  4 bytes, over the row's name, version and bytes
//   row       the table's row; an entry without it says "no level has this key"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hps/types.h"

namespace hps {

inline constexpr size_t kRowValueHeaderBytes = 12;

// What makes a row's name unique; its value is valid under no other one.
struct RowIdentity {
  Incarnation incarnation = 0;
  uint64_t generation = 0;
  Key key = 0;
};

// Appends the value; an empty row makes the entry of an absent key.
void AppendRowValue(const RowIdentity& identity, Version version, std::span<const std::byte> row,
                    std::string& out);

struct RowValue {
  bool valid = false;
  Version version = 0;
  std::span<const std::byte> row{};  // in the value; empty for an absent key
};

// Not valid: of another name, damaged, or neither empty nor `row_bytes` long.
RowValue ParseRowValue(const RowIdentity& identity, std::string_view value, size_t row_bytes);

}  // namespace hps
