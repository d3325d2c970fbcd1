// One table of two parts (layered_tier.h), and a fetch from it.
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
  bool can_block() const override { return true; }
  bool has_near_part() const override { return true; }

 private:
  friend class LayeredFetch;

  const std::unique_ptr<LossyTable> near_;
  const std::unique_ptr<LossyTable> far_;
  const size_t row_bytes_;
  // Raises of watermarks that have begun, and the last of them that has ended.
  std::atomic<uint64_t> raises_begun_{0};
  std::atomic<uint64_t> raises_ended_{0};
};

// A fetch in steps, so that the far parts of several tables can be asked together. For one thread.
//
//   LayeredFetch fetch(table, batch);
//   if (fetch.AskNear(deadline)) fetch.TakeFar(far part's Fetch(fetch.far_batch(), deadline));
//   return fetch.counts();
class LayeredFetch {
 public:
  // `table` and what `batch` borrows outlive it.
  LayeredFetch(LayeredTable& table, const FetchBatch& batch);
  ~LayeredFetch();
  LayeredFetch(const LayeredFetch&) = delete;
  LayeredFetch& operator=(const LayeredFetch&) = delete;

  // True if the far part is to be asked for what the near part lacks.
  bool AskNear(Deadline deadline);
  LossyTable* far() const { return table_.far_.get(); }
  FetchBatch far_batch();
  // The far part has written its answer into far_batch(), or has failed. Nothing is done if it was
  // not to be asked.
  void TakeFar(const absl::StatusOr<FetchCounts>& answered);
  const absl::StatusOr<FetchCounts>& counts() const { return counts_; }

 private:
  // The keys that the near part lacks, each once, and what the far part says of them.
  struct Misses {
    std::vector<uint32_t> positions;  // [misses], in the batch, in the order of their keys
    std::vector<Key> keys;            // [n], ascending
    std::vector<std::byte> rows;
    std::vector<FetchOutcome> outcomes;
    std::vector<Version> versions;
    std::vector<FetchOutcome> near_outcomes;  // of a second fetch
    std::vector<uint8_t> absent;
  };

  // For the next fetches of this thread.
  static std::vector<std::unique_ptr<Misses>>& FreeMisses();
  void ListMisses();
  absl::Status AskNearAgain();
  void Answer(FetchCounts& counts);
  void CopyIntoNear(ApplyEpoch epoch);

  LayeredTable& table_;
  const FetchBatch batch_;
  uint64_t raised_ = 0;  // the last raise of watermarks that had ended before
  std::unique_ptr<Misses> misses_;
  absl::StatusOr<FetchCounts> counts_;
};

}  // namespace hps
