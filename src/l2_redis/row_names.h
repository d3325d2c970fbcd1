// The names of a table's rows in Redis, and the grouping of keys by hash slot.
//
//   PREFIX ":" INCARNATION "{" TAG "}" GENERATION KEY
//   PREFIX ":" INCARNATION "{" TAG "}" GENERATION       (number of the last change)
//
// INCARNATION is nine characters; TAG is two characters that choose the slot: the table's
// partitions lie at equal distances over all slots. GENERATION is three bytes, KEY the key's eight
// (docs/redis.md, "What is stored").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hps/types.h"

namespace hps {

class RowNames {
 public:
  // REQUIRES: `prefix` has no braces; partition_count > 0.
  RowNames(std::string_view prefix, Incarnation incarnation, size_t partition_count);

  size_t partition_count() const { return partitions_.size(); }
  uint16_t slot(size_t partition) const { return partitions_[partition].slot; }
  size_t PartitionOf(Key key) const;

  // Appends the name of a row, as part of a command.
  void AppendName(size_t partition, uint64_t generation, Key key, std::string& out) const;
  // Appends the name of the number of the partition's last change, as part of a command.
  void AppendChangeName(size_t partition, uint64_t generation, std::string& out) const;
  // Bytes that AppendName appends.
  size_t name_part_bytes() const { return name_part_bytes_; }

 private:
  struct Partition {
    uint16_t slot = 0;
    std::string head;         // of the part: its size, and the name up to the generation
    std::string change_head;  // the same of the change's name
  };

  std::vector<Partition> partitions_;
  size_t name_part_bytes_ = 0;
};

// The positions of a batch's keys, grouped by partition. Reused by each thread for its batches.
struct KeyGroups {
  void Group(const RowNames& names, std::span<const Key> keys);

  std::vector<uint32_t> positions;  // [keys], by partition, then descending
  std::vector<uint32_t> begins;     // [partitions + 1], in `positions`
  std::vector<uint16_t> partition_of;
};

}  // namespace hps
