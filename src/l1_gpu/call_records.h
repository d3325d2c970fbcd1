// The queries of one lookup, and their misses as the host reads them from the records that the
// probe writes to pinned memory (misses.h).
//
// Clear and AddQuery describe a lookup. Read copies the keys of complete records, so that they are
// contiguous; the probe may still be running. Duplicates, AreAnsweredOnDevice and ForEachDuplicate
// REQUIRE that the probe has ended, and that Read has read all of the query's misses.
//
// Not thread-safe, except that the device may write records during Read. Allocates nothing after
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hps/types.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/misses.h"

namespace hps {

class CallRecords {
 public:
  // The next generation is 0, for which LaunchQuery needs zeroed memory.
  static constexpr uint32_t kGenerationMax = UINT32_MAX;

  // `misses` has room for `keys_max` keys, and must outlive this object.
  CallRecords(const MissBuffers& misses, size_t keys_max);

  // Begins a lookup, without queries.
  void Clear();
  // Adds a query, and sets its first_key to the key_count before. REQUIRES: at most
  // kTablesPerCallMax queries with keys_max keys in total.
  void AddQuery(const QueryView& query);

  std::span<const QueryView> queries() const { return queries_; }
  size_t key_count() const { return key_count_; }  // of all queries

  // The generation of the lookup's launch. Records of other generations are not read.
  uint32_t generation() const { return generation_; }
  void set_generation(uint32_t generation) { generation_ = generation; }

  // Reads at most `count_max` further misses of a query. Returns whether it has read all misses
  // that the probe has listed so far.
  bool Read(size_t query, size_t count_max);
  // [queries]: the unique missing keys that have been read, in the order of their records.
  std::span<const std::span<const Key>> keys() const { return keys_; }

  // The records of a query's positions that wait for another position's key. Costs a pass over
  // them, to find the first record of another generation.
  std::span<const DuplicateRecord> Duplicates(size_t query) const;
  // Whether the device has answered all positions of the query's misses from level 2.
  bool AreAnsweredOnDevice(size_t query) const;

  // Calls `take(unique index, count)` for every record of Duplicates. Looks at every miss of the
  // query, which takes a fifth of a lookup's time if many keys miss.
  template <typename Take>
  void ForEachDuplicate(size_t query, const Take& take);

 private:
  std::span<const MissRecord> Records(size_t query) const {
    return {misses_.records + queries_[query].first_key, keys_[query].size()};
  }

  const MissBuffers& misses_;
  uint32_t generation_ = 0;
  size_t key_count_ = 0;
  std::vector<QueryView> queries_;
  std::vector<std::span<const Key>> keys_;    // [queries]
  const std::unique_ptr<Key[]> unique_keys_;  // [keys_max]
  // Scratch for one query: a bit per position, and the unique index of each position whose bit is
  // set.
  const std::unique_ptr<uint64_t[]> has_duplicates_;  // zero between uses
  const std::unique_ptr<uint32_t[]> index_of_;        // [keys_max]
};

template <typename Take>
void CallRecords::ForEachDuplicate(size_t query, const Take& take) {
  // Recording the unique index of every position would cost a cache miss each, so only positions
  // with duplicates are recorded.
  const std::span<const DuplicateRecord> duplicates = Duplicates(query);
  const auto bit_of = [](uint32_t position) { return uint64_t{1} << position % 64; };
  for (const DuplicateRecord& record : duplicates)
    has_duplicates_[record.position / 64] |= bit_of(record.position);
  const std::span<const MissRecord> records = Records(query);
  for (size_t i = 0; i < records.size(); ++i) {
    const uint32_t position = records[i].position & ~kAnsweredOnDevice;
    if ((has_duplicates_[position / 64] & bit_of(position)) != 0)
      index_of_[position] = static_cast<uint32_t>(i);
  }
  for (const DuplicateRecord& record : duplicates) {
    has_duplicates_[record.position / 64] = 0;
    take(index_of_[record.position], record.count);
  }
}

}  // namespace hps
