// How far this node is in the stream of a shared table, and which keys have changed lately: what
// decides whether a row that any node wrote may be answered here.
//
// The row of a key is taken if this node's level 3 has applied its version, and if no later change
// of the key is known here. Both compare versions, which are positions of the stream: they mean the
// same on every node of the same generation. A key's partition follows from its hash, as in the
// contract with producers (docs/updates.md).
//
// The latest changes are kept as watermarks: for each partition, an array that is indexed by the
// key's hash. So the memory is bounded, and a change may make rows of a few other keys misses.
//
// If a producer put a change of a key into a wrong partition, the key's versions have no order, and
// no row of the key is taken. The fence keeps hashes of 16 bits of such keys as long as it lives,
// also in later generations: nodes may have applied the changes of such a key in different orders,
// so that their level 3 has different rows. Level 3 keeps the same hashes for the next fence of the
// table.
//
// BeginChange and EndChange are for the table's applier, one at a time; the rest is thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

class StreamFence {
 public:
  // A bit for each UnorderedHash (tier/durable_tier.h).
  class UnorderedKeys {
   public:
    void Add(uint16_t hash) {
      words_[hash / 64].fetch_or(uint64_t{1} << hash % 64, std::memory_order_seq_cst);
    }
    bool Has(uint16_t hash) const {
      return (words_[hash / 64].load(std::memory_order_seq_cst) >> hash % 64 & 1) != 0;
    }

   private:
    std::vector<std::atomic<uint64_t>> words_ = std::vector<std::atomic<uint64_t>>((1 << 16) / 64);
  };

  // One generation of the topic: its partitions stay the same.
  class Generation {
   public:
    // `positions` are of one generation, by partition from 0 on; none: no stream was read yet.
    // `unordered` is borrowed.
    Generation(std::span<const StreamPosition> positions, const UnorderedKeys& unordered);

    uint16_t number() const { return number_; }  // 0 = no stream was read yet
    size_t partition_count() const { return positions_.size(); }
    // REQUIRES: partition_count() > 0.
    size_t PartitionOf(Key key) const;
    // The position of level 3, as a version: it has all versions below.
    Version Position(size_t partition) const {
      return positions_[partition].load(std::memory_order_seq_cst);
    }
    std::vector<Version> Positions() const;

    // Whether a row of `version` may be answered if it is known that the row missed no change
    // between `version` and `complete_to`. REQUIRES: the row's generation is this one.
    bool Takes(Key key, Version version, Version complete_to) const;
    // False: a producer put a change of the key, or of one with the same hash, into another
    // partition, in this generation or an earlier one. Then versions have no order.
    bool IsOrdered(Key key) const;

   private:
    friend class StreamFence;
    size_t WatermarkOf(Key key, size_t partition) const;

    const UnorderedKeys& unordered_;
    const uint16_t number_;
    const size_t watermarks_per_partition_;
    std::vector<std::atomic<Version>> positions_;
    std::vector<std::atomic<Version>> watermarks_;  // the highest version of a change
  };

  // `positions` as TableInfo has them; `complete` = no record was lost before it was read.
  // `unordered_hashes` as DurableTable has them.
  StreamFence(std::span<const StreamPosition> positions, bool complete,
              std::span<const uint16_t> unordered_hashes = {});

  // Null: this node shares no rows now. Valid as long as the fence.
  const Generation* current() const { return current_.load(std::memory_order_seq_cst); }

  // Before level 3 shows the change.
  void BeginChange(std::span<const Key> keys, std::span<const StreamPosition> positions);
  // Level 3 has the change. `complete` as above.
  void EndChange(std::span<const StreamPosition> positions, bool complete);
  // From now on, a row is taken only if it is complete up to the positions that level 3 has now.
  void ForgetRows();

  static constexpr size_t kWatermarks = size_t{1} << 16;  // of a generation, of 8 bytes
  static constexpr size_t kGenerationsMax = 16;           // in the life of a fence

 private:
  void Stop() { current_.store(nullptr, std::memory_order_seq_cst); }
  void Begin(std::span<const StreamPosition> positions);

  UnorderedKeys unordered_;
  std::vector<std::unique_ptr<Generation>> generations_;
  std::atomic<Generation*> current_{nullptr};
};

}  // namespace hps
