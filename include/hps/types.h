// The words that every part of hps shares: key, version, element type, per-key status.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hps {

// Names a row of a table. Every 64-bit value is legal, also -1, the minimum and the maximum.
// 32-bit keys widen on input; unsigned 64-bit ones are taken bit for bit.
using Key = int64_t;

// Orders the values of one row inside one incarnation of its table: topic generation in the upper
// 16 bits (from 1), stream offset in the lower 48. 0 = as imported.
using Version = uint64_t;

// One complete import of a table: a random number of kIncarnationBits bits that is never used
// twice in a store. Entries of the upper levels belong to exactly one incarnation.
using Incarnation = uint64_t;
inline constexpr int kIncarnationBits = 52;

// Element type of a row. The numbers are stored on disk and never change.
enum class Dtype : uint8_t { kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3 };

constexpr size_t ElementBytes(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

// "float32", "float16", "bfloat16".
constexpr std::string_view DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
  }
  return "unknown";
}

// What was answered for one key. The numbers are part of the wire format and never change.
enum class KeyStatus : uint8_t {
  kAbsent = 0,           // no level has the key: the table's default row
  kHitL1 = 1,            // the GPU cache answered
  kHitL2 = 2,            // the volatile database answered
  kHitL3 = 3,            // the persistent database answered
  kDefaultPending = 4,   // a default row now, the real one is being inserted in the background
  kDefaultDegraded = 5,  // a default row because a level failed or the deadline passed
};
inline constexpr size_t kKeyStatusCount = 6;

inline constexpr std::array<std::string_view, kKeyStatusCount> kKeyStatusNames = {
    "absent", "hit_l1", "hit_l2", "hit_l3", "default_pending", "default_degraded"};

constexpr std::string_view KeyStatusName(KeyStatus status) {
  return kKeyStatusNames[static_cast<size_t>(status)];
}

}  // namespace hps
