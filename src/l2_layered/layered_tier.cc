#include "l2_layered/layered_tier.h"

#include <utility>

#include "base/macros.h"
#include "l2_layered/layered_table.h"

namespace hps {
namespace {

class LayeredTier final : public LossyTier {
 public:
  LayeredTier(std::unique_ptr<LossyTier> near, std::unique_ptr<LossyTier> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  LossyTraits traits() const override { return {.layered = true}; }

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> far, far_->OpenTable(spec, incarnation, 0));
    absl::StatusOr<std::unique_ptr<LossyTable>> near =
        near_->OpenTable(spec, incarnation, bytes_max);
    if (absl::IsResourceExhausted(near.status())) return far;
    HPS_RETURN_IF_ERROR(near.status());
    return std::make_unique<LayeredTable>(*std::move(near), std::move(far), spec.row_bytes());
  }

 private:
  const std::unique_ptr<LossyTier> near_;
  const std::unique_ptr<LossyTier> far_;
};

}  // namespace

std::unique_ptr<LossyTier> MakeLayeredTier(std::unique_ptr<LossyTier> near,
                                           std::unique_ptr<LossyTier> far) {
  return std::make_unique<LayeredTier>(std::move(near), std::move(far));
}

}  // namespace hps
