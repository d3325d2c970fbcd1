// The number of the last change of each partition of a table, as far as this process knows it.
//
// Each change writes a higher number beside the rows that it changes, and each fetch reads the
// number with the rows. A server that lost a change has a lower number than was seen before: then
// its rows may be older than those that were answered (docs/redis.md, "Why no row goes back").
//
// When a generation of a partition ends, its rows get new names, whose number begins with 0. Each
// note carries the count of ends at which its names were valid, so that a late answer under old
// names changes nothing.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hps {

class ChangeNumbers {
 public:
  explicit ChangeNumbers(size_t partition_count) : partitions_(partition_count) {}

  // How often the partition's names have ended because its server had lost a change.
  uint64_t Losses(size_t partition) const {
    return partitions_[partition].losses.load(std::memory_order_seq_cst);
  }
  // Does nothing unless `losses` is still the count, so that a loss that several calls see counts
  // once.
  void NoteLoss(size_t partition, uint64_t losses) {
    partitions_[partition].losses.compare_exchange_strong(losses, losses + 1,
                                                          std::memory_order_seq_cst);
  }

  // For the next change: higher than all before.
  uint64_t Next(size_t partition) {
    return 1 + partitions_[partition].given.fetch_add(1, std::memory_order_relaxed);
  }

  // The highest number that was noted under the names that the partition has after `ends` ends of
  // generations; 0 = none.
  uint64_t Seen(size_t partition, uint64_t ends) const {
    const uint64_t seen = partitions_[partition].seen.load(std::memory_order_seq_cst);
    return seen >> kNumberBits == ShortOf(ends) ? seen & kNumberMask : 0;
  }

  // The change `number` has been made, or its rows have been read. `ends_now()` is the count of
  // ends at the time of its call.
  template <typename EndsNow>
  void Note(size_t partition, uint64_t ends, uint64_t number, const EndsNow& ends_now) {
    std::atomic<uint64_t>& seen = partitions_[partition].seen;
    const uint64_t noted = ShortOf(ends) << kNumberBits | (number & kNumberMask);
    uint64_t before = seen.load(std::memory_order_seq_cst);
    do {
      // ends_now() is called after `seen` was read, so that no note of newer names is overwritten.
      if (ends_now() != ends) return;
      if (before >> kNumberBits == ShortOf(ends) && before >= noted) return;
    } while (!seen.compare_exchange_weak(before, noted, std::memory_order_seq_cst));
  }

 private:
  static constexpr int kNumberBits = 44;
  static constexpr uint64_t kNumberMask = (uint64_t{1} << kNumberBits) - 1;
  struct Partition {
    std::atomic<uint64_t> losses{0};
    std::atomic<uint64_t> given{0};
    // The lowest bits of the count of ends, and the number. A note of a million ends ago may be
    // taken for a current one, which costs the partition's rows.
    std::atomic<uint64_t> seen{0};
  };

  static uint64_t ShortOf(uint64_t ends) { return ends & (UINT64_MAX >> kNumberBits); }

  std::vector<Partition> partitions_;
};

}  // namespace hps
