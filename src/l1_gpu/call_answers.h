// The answers to the misses of one lookup, and the number of its positions by status.
//
// Begin takes the answers that the device has found in level 2. Add takes those of pieces and
// counts one position per key. CountDuplicates counts the other positions, once all keys are
// answered. The device counts the positions of the keys that it probes again; AddDeviceCounts takes
// its counts.
//
// Not thread-safe. Allocates nothing after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "l1_gpu/call_records.h"
#include "tier/device_cache.h"

namespace hps {

class CallAnswers {
 public:
  // `records` has room for `keys_max` keys, and must outlive this object.
  CallAnswers(CallRecords& records, size_t keys_max);

  // Begins with the misses of the records. REQUIRES: all of them have been read.
  void Begin();

  // All misses, and which of them the device has answered.
  DeviceMisses misses() const { return {records_.keys(), positions_, direct_}; }

  // Takes the answers of a piece, and discards those that the device has found for its query.
  // REQUIRES: the piece is within the misses, answers no key again, and has the rows that it needs.
  void Add(const DeviceRowPiece& piece);
  // Positions of a query's misses, except one per key.
  uint32_t duplicate_count(size_t query) const { return queries_[query].duplicate_count; }

  // Errors: FAILED_PRECONDITION (a miss was not answered).
  absl::Status CheckComplete() const;
  // Counts the positions of duplicates, those of each query once, if all misses are answered.
  void CountDuplicates();
  // Adds what the device has counted: [queries][kKeyStatusCount].
  void AddDeviceCounts(const uint32_t* counts);

  // Positions of a query by status, as far as they have been counted.
  const LookupCounts& counts(size_t query) const { return queries_[query].counts; }

 private:
  struct Query {
    LookupCounts counts;
    std::span<KeyStatus> answers{};         // [misses]: a part of answers_
    KeyStatus common_answer = kUnanswered;  // of all answered keys
    uint32_t duplicate_count = 0;
    bool duplicates_counted = false;
  };

  void Check(const DeviceRowPiece& piece) const;
  void CountDuplicates(size_t query);

  CallRecords& records_;
  std::vector<Query> queries_;
  std::vector<uint64_t> positions_;             // [queries]: see DeviceMisses; so is direct_
  std::vector<uint8_t> direct_;                 // [queries]
  const std::unique_ptr<KeyStatus[]> answers_;  // [keys_max]
  size_t unanswered_count_ = 0;
};

}  // namespace hps
