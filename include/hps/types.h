// Basic types of hps: key, version, element type, status of a key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hps {

// Identifies a row of a table. Every 64-bit value is valid, including -1, the minimum and the
// maximum. 32-bit keys are widened; unsigned 64-bit keys keep their bits.
using Key = int64_t;

// Orders the values of one row within one incarnation of its table: the topic's generation (from 1)
// in the upper 16 bits, the stream offset in the lower 48. 0 = as imported.
using Version = uint64_t;

// Identifies one import of a table: a random number of kIncarnationBits bits, unique within a
// store. Every cached row belongs to one incarnation.
using Incarnation = uint64_t;
inline constexpr int kIncarnationBits = 52;

// Element type of a row. The numbers are part of the file format and never change.
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

// How one key was answered. The numbers are part of the wire format and never change.
enum class KeyStatus : uint8_t {
  kAbsent = 0,           // the table does not have the key: its default row
  kHitL1 = 1,            // row from level 1, the GPU cache
  kHitL2 = 2,            // row from level 2, the cache in host memory
  kHitL3 = 3,            // row from level 3, the store on disk
  kDefaultPending = 4,   // default row; the key's row is being inserted in the background
  kDefaultDegraded = 5,  // default row, because a level failed or the deadline passed
};
inline constexpr size_t kKeyStatusCount = 6;

inline constexpr std::array<std::string_view, kKeyStatusCount> kKeyStatusNames = {
    "absent", "hit_l1", "hit_l2", "hit_l3", "default_pending", "default_degraded"};

constexpr std::string_view KeyStatusName(KeyStatus status) {
  return kKeyStatusNames[static_cast<size_t>(status)];
}

}  // namespace hps
