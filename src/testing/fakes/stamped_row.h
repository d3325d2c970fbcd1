// Rows for tests and benchmarks in which every element identifies its table, key and version, so
// that every read detects a torn, foreign or old row.
//
// A stamped row of any width from 1 byte: 8-byte words of a keyed mix of (table, key, version, word
// number), the last one truncated. Rows of at least 8 bytes carry the version in plain form instead
// of their first word, so that a reader can tell which version it got.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "hps/types.h"

namespace hps {

class StampedRow {
 public:
  // Fills `row`.
  static void Write(uint64_t table, Key key, Version version, std::span<std::byte> row) {
    for (size_t offset = 0, word = 0; offset < row.size(); offset += 8, ++word) {
      const uint64_t value = Word(table, key, version, word, row.size());
      std::memcpy(row.data() + offset, &value, row.size() - offset < 8 ? row.size() - offset : 8);
    }
  }

  // Whether `row` is exactly the row of (table, key, version).
  static bool Matches(uint64_t table, Key key, Version version, std::span<const std::byte> row) {
    for (size_t offset = 0, word = 0; offset < row.size(); offset += 8, ++word) {
      const uint64_t value = Word(table, key, version, word, row.size());
      if (std::memcmp(row.data() + offset, &value,
                      row.size() - offset < 8 ? row.size() - offset : 8) != 0) {
        return false;
      }
    }
    return true;
  }

  // The version of a complete row of (table, key), nullopt if it is torn or another key's.
  // REQUIRES: row.size() >= 16, so that at least one mixed word confirms the version.
  static std::optional<Version> VersionOf(uint64_t table, Key key, std::span<const std::byte> row) {
    Version version = 0;
    std::memcpy(&version, row.data(), sizeof(version));
    if (!Matches(table, key, version, row)) return std::nullopt;
    return version;
  }

 private:
  static uint64_t Word(uint64_t table, Key key, Version version, size_t word, size_t row_bytes) {
    if (word == 0 && row_bytes >= 16) return version;
    uint64_t x = static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15 + table * 0xd6e8feb86659fd93 +
                 version * 0xa0761d6478bd642f + word * 0xe7037ed1a0b428db;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return x ^ (x >> 29);
  }
};

}  // namespace hps
