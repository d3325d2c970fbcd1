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

  // A table that has no near part is the far tier's.
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    std::vector<std::unique_ptr<LayeredFetch>> layered(fetches.size());
    std::vector<TableFetch> far(fetches.size());
    for (size_t i = 0; i < fetches.size(); ++i) {
      auto* const table = dynamic_cast<LayeredTable*>(fetches[i].table);
      if (table == nullptr) {
        far[i] = {.table = fetches[i].table, .batch = fetches[i].batch};
        continue;
      }
      layered[i] = std::make_unique<LayeredFetch>(*table, fetches[i].batch);
      far[i].table = layered[i]->far();
      if (layered[i]->AskNear(deadline)) far[i].batch = layered[i]->far_batch();
    }
    far_->Fetch(far, deadline);
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (layered[i] != nullptr) layered[i]->TakeFar(far[i].counts);
      fetches[i].counts = layered[i] != nullptr ? layered[i]->counts() : far[i].counts;
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
