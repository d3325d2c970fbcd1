#include "l2_redis/stream_fence.h"

#include <algorithm>

#include "base/hash.h"
#include "tier/durable_tier.h"

namespace hps {
namespace {

Version VersionOf(const StreamPosition& position) {
  return VersionAt(position.generation, position.offset);
}

uint16_t NewestGeneration(std::span<const StreamPosition> positions) {
  uint16_t newest = 0;
  for (const StreamPosition& position : positions) newest = std::max(newest, position.generation);
  return newest;
}

void Raise(std::atomic<Version>& watermark, Version version) {
  if (watermark.load(std::memory_order_relaxed) < version)
    watermark.store(version, std::memory_order_seq_cst);
}

}  // namespace

// The changes before `positions` are not known, so a row must be complete up to them.
StreamFence::Generation::Generation(std::span<const StreamPosition> positions,
                                    const UnorderedKeys& unordered)
    : unordered_(unordered),
      number_(NewestGeneration(positions)),
      watermarks_per_partition_(
          positions.empty() ? 0 : std::max<size_t>(1, kWatermarks / positions.size())),
      positions_(positions.size()),
      watermarks_(watermarks_per_partition_ * positions.size()) {
  for (const StreamPosition& position : positions) {
    positions_[position.partition] = VersionOf(position);
    for (size_t i = 0; i < watermarks_per_partition_; ++i)
      watermarks_[position.partition * watermarks_per_partition_ + i] = VersionOf(position) - 1;
  }
}

size_t StreamFence::Generation::PartitionOf(Key key) const {
  return HashKey(key, kStreamHashSeed) % positions_.size();
}

size_t StreamFence::Generation::WatermarkOf(Key key, size_t partition) const {
  return partition * watermarks_per_partition_ +
         HashToRange(HashKey(key, kWatermarkHashSeed), watermarks_per_partition_);
}

std::vector<Version> StreamFence::Generation::Positions() const {
  std::vector<Version> versions;
  for (size_t partition = 0; partition < positions_.size(); ++partition)
    versions.push_back(Position(partition));
  return versions;
}

// The position is read before the watermark. A change raises the watermark before it moves the
// position, so a reader that sees the new position also sees the new watermark.
bool StreamFence::Generation::Takes(Key key, Version version, Version complete_to) const {
  if (!IsOrdered(key)) return false;
  if (positions_.empty()) return version == 0;
  const size_t partition = PartitionOf(key);
  if (version >= Position(partition)) return false;
  const Version changed = watermarks_[WatermarkOf(key, partition)].load(std::memory_order_seq_cst);
  return complete_to > changed || version >= changed;
}

bool StreamFence::Generation::IsOrdered(Key key) const {
  return !unordered_.Has(UnorderedHash(key));
}

StreamFence::StreamFence(std::span<const StreamPosition> positions, bool complete,
                         std::span<const uint16_t> unordered_hashes) {
  for (const uint16_t hash : unordered_hashes) unordered_.Add(hash);
  const uint16_t newest = NewestGeneration(positions);
  std::vector<StreamPosition> kept;
  for (const StreamPosition& position : positions) {
    if (position.generation == kDirectGeneration) return;  // its changes are this node's alone
    if (position.generation == newest) kept.push_back(position);
  }
  if (complete) Begin(kept);
}

void StreamFence::Begin(std::span<const StreamPosition> positions) {
  std::vector<StreamPosition> sorted(positions.begin(), positions.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.partition < b.partition; });
  bool is_whole = generations_.size() < kGenerationsMax;
  for (size_t i = 0; i < sorted.size(); ++i) {
    is_whole &= sorted[i].partition == i && sorted[i].generation == sorted[0].generation;
  }
  if (!is_whole) return Stop();
  generations_.push_back(std::make_unique<Generation>(sorted, unordered_));
  current_.store(generations_.back().get(), std::memory_order_seq_cst);
}

void StreamFence::BeginChange(std::span<const Key> keys,
                              std::span<const StreamPosition> positions) {
  Generation* const generation = current_.load(std::memory_order_seq_cst);
  if (generation == nullptr || keys.empty()) return;
  const size_t count = generation->partition_count();
  std::vector<Version> last(count);  // of a change, by partition; 0 = it has none there
  for (const StreamPosition& position : positions) {
    if (position.generation != generation->number() || position.partition >= count) return Stop();
    last[position.partition] = VersionOf(position) - 1;
  }
  if (count == 0) return Stop();
  for (const Key key : keys) {
    const size_t partition = generation->PartitionOf(key);
    if (last[partition] == 0) {
      unordered_.Add(UnorderedHash(key));
    } else {
      Raise(generation->watermarks_[generation->WatermarkOf(key, partition)], last[partition]);
    }
  }
}

void StreamFence::EndChange(std::span<const StreamPosition> positions, bool complete) {
  Generation* const generation = current_.load(std::memory_order_seq_cst);
  if (!complete) return Stop();
  if (generation == nullptr || positions.empty()) return;
  if (NewestGeneration(positions) > generation->number()) return Begin(positions);
  for (const StreamPosition& position : positions) {
    if (position.generation != generation->number() ||
        position.partition >= generation->partition_count()) {
      return Stop();
    }
    generation->positions_[position.partition].store(VersionOf(position),
                                                     std::memory_order_seq_cst);
  }
}

void StreamFence::ForgetRows() {
  Generation* const generation = current_.load(std::memory_order_seq_cst);
  if (generation == nullptr) return;
  for (size_t partition = 0; partition < generation->partition_count(); ++partition) {
    for (size_t i = 0; i < generation->watermarks_per_partition_; ++i) {
      Raise(generation->watermarks_[partition * generation->watermarks_per_partition_ + i],
            generation->Position(partition) - 1);
    }
  }
}

}  // namespace hps
