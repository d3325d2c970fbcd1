// One table of two parts (layered_tier.h).
//
// No reader gets a row that is older than one shown before, because
//   - a change raises the watermarks of both parts before anything else, then changes the far part
//     and last the near one. So a reader that misses in the near part and gets the new row from the
//     far part leaves no older row behind in the near one;
//   - a row is copied into the near part under the apply epoch that was published before the
//     caller's first fetch, as a promotion is (tier/fence.h);
//   - a fetch during which the watermarks were being raised asks the near part again for what came
//     from the far one, and the second answer wins: an insertion that was under way may have put an
//     older row into the near part after the fetch missed there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tier/lossy_tier.h"

namespace hps {

class LayeredTable final : public LossyTable {
 public:
  LayeredTable(std::unique_ptr<LossyTable> near, std::unique_ptr<LossyTable> far, size_t row_bytes);
  LayeredTable(const LayeredTable&) = delete;
  LayeredTable& operator=(const LayeredTable&) = delete;

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override;
  // The counts are those of the near part: what the far part holds or drops is not known by key.
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override;
  // The larger of the parts' counts: one part may hold a key that the other does not.
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override;
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::Status Clear() override;
  // Of the near part, whose rows are counted; `dropped` is the sum of both.
  LevelStatistics Statistics() const override;
  // Of the near part.
  absl::StatusOr<size_t> HottestKeys(std::span<Key> keys, Deadline deadline) const override;
  bool can_block() const override { return true; }
  bool has_near_part() const override { return true; }

 private:
  // The keys of a batch that the near part lacks, and what the far part says of them.
  struct Misses {
    std::vector<uint32_t> positions;  // [n], in the batch
    std::vector<Key> keys;            // [n]
    std::vector<std::byte> rows;
    std::vector<FetchOutcome> outcomes;
    std::vector<Version> versions;
    std::vector<FetchOutcome> near_outcomes;  // of a second fetch
    std::vector<uint8_t> absent;
  };

  // Reused by its thread.
  class MissesLease;

  void List(const FetchBatch& batch, Misses& misses) const;
  FetchBatch BatchOf(Misses& misses) const;
  absl::Status AskNearAgain(Misses& misses);
  void Answer(const Misses& misses, const FetchBatch& batch, FetchCounts& counts) const;
  void CopyIntoNear(Misses& misses, ApplyEpoch epoch);

  const std::unique_ptr<LossyTable> near_;
  const std::unique_ptr<LossyTable> far_;
  const size_t row_bytes_;
  // Raises of watermarks that have begun, and the last of them that has ended.
  std::atomic<uint64_t> raises_begun_{0};
  std::atomic<uint64_t> raises_ended_{0};
};

}  // namespace hps
