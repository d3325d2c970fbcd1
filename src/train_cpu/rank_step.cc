#include "train_cpu/rank_step.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "train/gradient_bound.h"
#include "train_cpu/keyed_part.h"
#include "train_cpu/localized_part.h"

namespace hps {
namespace {

// Sums of gradients end with flags: whether all of the rank's gradients are allowed; then for each
// table, whether the rank has a gradient of it.
constexpr float kYes = 1;
constexpr float kNo = 0;

size_t FlagCount(size_t table_count) { return 1 + table_count; }

std::vector<const float*> Begins(std::span<const std::span<const float>> pieces) {
  std::vector<const float*> begins;
  for (const std::span<const float> piece : pieces) begins.push_back(piece.data());
  return begins;
}

template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding tables: no memory for a step of several ranks");
  }
}

}  // namespace

std::unique_ptr<RankPart> NewRankPart(const RankTable& table, const RankPlace& place) {
  if (table.holder.has_value()) return std::make_unique<LocalizedPart>(table, place);
  return std::make_unique<KeyedPart>(table, place);
}

RankStep::RankStep(const RankPlace& place, std::span<const RankTable* const> tables,
                   std::span<const int64_t> ids)
    : place_(place), ids_(ids.begin(), ids.end()) {
  HPS_CHECK(tables.size() == ids.size());
  for (const RankTable* const table : tables) parts_.push_back(NewRankPart(*table, place));
}

absl::Status RankStep::Begin(std::span<const BagBatch> batches, bool is_training) {
  HPS_CHECK(batches.size() == parts_.size());
  return Guarded([&] {
    gradient_factors_.clear();
    for (size_t i = 0; i < parts_.size(); ++i) {
      HPS_RETURN_IF_ERROR(parts_[i]->Begin(batches[i], is_training));
      gradient_factors_.push_back(GradientFactor(batches[i]));
    }
    return absl::OkStatus();
  });
}

PieceSizes RankStep::Sizes(uint32_t rank) const {
  PieceSizes total;
  total.message = 1 + ids_.size();
  total.gradients_to = total.gradients_from = FlagCount(parts_.size());
  for (const auto& part : parts_) {
    const PieceSizes sizes = part->Sizes(rank);
    total.message += sizes.message;
    total.rows_to += sizes.rows_to;
    total.rows_from += sizes.rows_from;
    total.gradients_to += sizes.gradients_to;
    total.gradients_from += sizes.gradients_from;
  }
  return total;
}

void RankStep::WriteMessage(uint32_t rank, int64_t* to) const {
  *to++ = static_cast<int64_t>(ids_.size());
  to = std::copy(ids_.begin(), ids_.end(), to);
  for (const auto& part : parts_) part->WriteMessage(rank, to);
}

absl::Status RankStep::ReadMessages(std::span<const std::span<const int64_t>> messages) {
  HPS_CHECK(messages.size() == place_.rank_count);
  return Guarded([&] {
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank)
      HPS_RETURN_IF_ERROR(ReadMessage(rank, messages[rank]));
    return absl::OkStatus();
  });
}

absl::Status RankStep::ReadMessage(uint32_t rank, std::span<const int64_t> message) {
  const size_t header = 1 + ids_.size();
  if (message.size() < header || message[0] != static_cast<int64_t>(ids_.size()) ||
      !std::equal(ids_.begin(), ids_.end(), message.begin() + 1)) {
    return absl::FailedPreconditionError(
        absl::StrCat("embedding tables: rank ", rank, " makes a step of other tables than rank ",
                     place_.rank, "; all ranks must look up the same tables in the same order"));
  }
  message = message.subspan(header);
  for (const auto& part : parts_) HPS_RETURN_IF_ERROR(part->ReadMessage(rank, message));
  return absl::OkStatus();
}

absl::Status RankStep::LookUp(std::span<float* const> to, std::span<float* const> outputs) {
  return Guarded([&] {
    std::vector<float*> at(to.begin(), to.end());
    for (size_t i = 0; i < parts_.size(); ++i)
      HPS_RETURN_IF_ERROR(parts_[i]->LookUp(at, outputs[i]));
    return absl::OkStatus();
  });
}

absl::Status RankStep::CheckReceived(std::span<const std::span<const float>> from,
                                     size_t PieceSizes::*expected) const {
  HPS_CHECK(from.size() == place_.rank_count);
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    const size_t count = Sizes(rank).*expected;
    if (from[rank].size() == count) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("embedding tables: rank ", rank, " sent ", from[rank].size(),
                     " values to rank ", place_.rank, ", which expected ", count,
                     "; all ranks must have equal tables and make the same steps"));
  }
  return absl::OkStatus();
}

absl::Status RankStep::Pool(std::span<const std::span<const float>> from,
                            std::span<float* const> outputs) {
  HPS_RETURN_IF_ERROR(CheckReceived(from, &PieceSizes::rows_from));
  return Guarded([&] {
    std::vector<const float*> at = Begins(from);
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i]->Pool(at, outputs[i]);
    return absl::OkStatus();
  });
}

absl::Status RankStep::SumGradients(std::span<const float* const> gradients,
                                    std::span<const size_t> gradient_counts, float scale,
                                    std::span<float* const> to) {
  return Guarded([&] {
    std::vector<float*> at(to.begin(), to.end());
    bool is_allowed = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      // Looked at just before they are summed: they are in the cache then.
      // A row has the gradients of all ranks.
      const float limit = GradientLimit(gradient_factors_[i] * place_.rank_count, scale);
      is_allowed = is_allowed && AllWithin({gradients[i], gradient_counts[i]}, limit);
      parts_[i]->SumGradients(gradients[i], at);
    }
    for (float* flags : at) {
      *flags++ = is_allowed ? kYes : kNo;
      for (const float* const gradient : gradients) *flags++ = gradient != nullptr ? kYes : kNo;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> RankStep::Update(std::span<const std::span<const float>> from,
                                      std::span<const UpdateFactors> factors) {
  HPS_RETURN_IF_ERROR(CheckReceived(from, &PieceSizes::gradients_from));
  bool can_update = true;
  const absl::Status status = Guarded([&] {
    std::vector<bool> has_gradient(parts_.size());
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
      const std::span<const float> flags = from[rank].last(FlagCount(parts_.size()));
      can_update = can_update && flags[0] == kYes;
      for (size_t i = 0; i < parts_.size(); ++i)
        has_gradient[i] = has_gradient[i] || flags[1 + i] == kYes;
    }
    if (!can_update) return absl::OkStatus();
    std::vector<const float*> at = Begins(from);
    for (size_t i = 0; i < parts_.size(); ++i)
      HPS_RETURN_IF_ERROR(parts_[i]->Update(at, has_gradient[i] ? &factors[i] : nullptr));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return can_update;
}

}  // namespace hps
