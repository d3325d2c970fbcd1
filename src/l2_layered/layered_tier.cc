#include "l2_layered/layered_tier.h"

#include <utility>
#include <vector>

#include "base/macros.h"
#include "l2_layered/layered_table.h"

namespace hps {
namespace {

class LayeredTier final : public LossyTier {
 public:
  LayeredTier(std::shared_ptr<LossyTier> near, std::unique_ptr<LossyTier> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  LossyTraits traits() const override { return {.layered = true}; }

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> far, far_->OpenTable(spec, incarnation, 0));
    return AddNearPart(*near_, spec, incarnation, bytes_max, std::move(far));
  }

  // A table that has no near part is the far tier's. One that the near part has answered is not
  // named to the far tier: it may be gone already.
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    std::vector<std::unique_ptr<LayeredFetch>> layered;  // null: a table of the far tier
    std::vector<TableFetch> far;
    std::vector<TableFetch*> asked;  // [i] is what far[i] is for
    for (TableFetch& fetch : fetches) {
      auto* const table = dynamic_cast<LayeredTable*>(fetch.table);
      auto of_table =
          table == nullptr ? nullptr : std::make_unique<LayeredFetch>(*table, fetch.batch);
      if (table == nullptr) {
        far.push_back({.table = fetch.table, .batch = fetch.batch});
      } else if (of_table->AskNear(deadline)) {
        far.push_back({.table = of_table->far(), .batch = of_table->far_batch()});
      } else {
        fetch.counts = of_table->counts();
        if (fetch.counts.ok() && fetch.on_answered_first) fetch.on_answered_first();
        continue;
      }
      layered.push_back(std::move(of_table));
      asked.push_back(&fetch);
    }
    if (far.empty()) return;  // this tier, too, may be gone
    far_->Fetch(far, deadline);
    for (size_t i = 0; i < far.size(); ++i) {
      if (layered[i] != nullptr) layered[i]->TakeFar(far[i].counts);
      asked[i]->counts = layered[i] != nullptr ? layered[i]->counts() : far[i].counts;
    }
  }

 private:
  const std::shared_ptr<LossyTier> near_;
  const std::unique_ptr<LossyTier> far_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LossyTable>> AddNearPart(LossyTier& near, const TableSpec& spec,
                                                        Incarnation incarnation, uint64_t bytes_max,
                                                        std::unique_ptr<LossyTable> far) {
  absl::StatusOr<std::unique_ptr<LossyTable>> part = near.OpenTable(spec, incarnation, bytes_max);
  if (absl::IsResourceExhausted(part.status())) return far;
  HPS_RETURN_IF_ERROR(part.status());
  return std::make_unique<LayeredTable>(*std::move(part), std::move(far), spec.row_bytes());
}

std::unique_ptr<LossyTier> MakeLayeredTier(std::shared_ptr<LossyTier> near,
                                           std::unique_ptr<LossyTier> far) {
  return std::make_unique<LayeredTier>(std::move(near), std::move(far));
}

}  // namespace hps
