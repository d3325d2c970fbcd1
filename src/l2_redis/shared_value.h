// How rows that several nodes share are stored in Redis (docs/redis.md, "What is stored").
//
// A row, under the table's name of its key:
//
//   nonce        8 bytes: that of the mark, or with its highest bit set if the row is late
//   version      8 bytes, big-endian: of the row. Of an absent key: no change of it is later
//   complete to  8 bytes, big-endian: no change of the key from `version` to here was missed
//   checksum     4 bytes, over the table, the key, the two versions and the row
//   row          the table's row; an entry without it says "no level has this key"
//
// The mark of the partition of Redis that the row lies in:
//
//   nonce        8 bytes, a random number; rows with another one are gone
//   positions    8 bytes for each partition of the stream, big-endian, as versions
//   checksum     4 bytes, big-endian, over nonce and positions
//
// All changes below the mark's positions have been made to the rows with its nonce that are not
// late. A late row was inserted by a node that had not applied all of these changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hps/types.h"

namespace hps {

inline constexpr size_t kSharedNonceBytes = 8;
inline constexpr size_t kSharedHeaderBytes = 28;  // of a row, with the nonce
inline constexpr size_t kSharedMarkChecksumBytes = 4;
inline constexpr uint64_t kLateBit = uint64_t{1} << 63;

struct SharedMark {
  uint64_t nonce = 0;
  std::vector<Version> positions{};

  uint16_t generation() const {
    return positions.empty() ? uint16_t{0} : static_cast<uint16_t>(positions[0] >> 48);
  }
};

// Nothing if the text is no mark, or a damaged one.
std::optional<SharedMark> ParseSharedMark(std::string_view text);

void AppendVersions(std::span<const Version> versions, std::string& out);
void AppendNonce(uint64_t nonce, std::string& out);
// `mark` is nonce and positions. The scripts compute the same (shared_scripts.cc).
uint32_t SharedMarkChecksum(std::string_view mark);

struct SharedRow {
  bool is_late = false;
  Version version = 0;
  Version complete_to = 0;
  std::span<const std::byte> row{};  // empty for an absent key
};

// What makes a shared row's name unique.
struct SharedIdentity {
  uint64_t table = 0;  // a hash of all that its rows are shared by
  Key key = 0;
};

// Appends the value behind its nonce, which the server puts before it.
void AppendSharedRow(const SharedIdentity& identity, const SharedRow& row, std::string& out);

enum class SharedRowState {
  kCurrent,
  kGone,     // written before the mark got its nonce
  kDamaged,  // of another name, or neither empty nor `row_bytes` long
};

// Writes `row` if the value is current; its bytes lie in the value.
SharedRowState ParseSharedRow(const SharedIdentity& identity, uint64_t nonce,
                              std::string_view value, size_t row_bytes, SharedRow& row);

}  // namespace hps
