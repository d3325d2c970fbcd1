#include "train_cpu/rank_step.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "train/finite.h"
#include "train_cpu/keyed_part.h"
#include "train_cpu/localized_part.h"

namespace hps {
namespace {

// Sums of gradients end with flags: whether all are finite; then for each table, whether the rank
// has a gradient of it.
constexpr float kYes = 1;
constexpr float kNo = 0;

size_t FlagCount(size_t table_count) { return 1 + table_count; }

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
    for (size_t i = 0; i < parts_.size(); ++i)
      HPS_RETURN_IF_ERROR(parts_[i]->Begin(batches[i], is_training));
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

absl::Status RankStep::Pool(std::span<const float* const> from, std::span<float* const> outputs) {
  return Guarded([&] {
    std::vector<const float*> at(from.begin(), from.end());
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i]->Pool(at, outputs[i]);
    return absl::OkStatus();
  });
}

absl::Status RankStep::SumGradients(std::span<const float* const> gradients,
                                    std::span<const size_t> gradient_counts,
                                    std::span<float* const> to) {
  return Guarded([&] {
    std::vector<float*> at(to.begin(), to.end());
    bool is_finite = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      // Checked just before it is summed: it is in the cache then.
      is_finite = is_finite && AllFinite({gradients[i], gradient_counts[i]});
      parts_[i]->SumGradients(gradients[i], at);
    }
    for (float* flags : at) {
      *flags++ = is_finite ? kYes : kNo;
      for (const float* const gradient : gradients) *flags++ = gradient != nullptr ? kYes : kNo;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> RankStep::Update(std::span<const float* const> from,
                                      std::span<const UpdateFactors> factors) {
  bool is_finite = true;
  const absl::Status status = Guarded([&] {
    std::vector<bool> has_gradient(parts_.size());
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
      const size_t end = Sizes(rank).gradients_from;
      const float* const flags = from[rank] + end - FlagCount(parts_.size());
      is_finite = is_finite && flags[0] == kYes;
      for (size_t i = 0; i < parts_.size(); ++i)
        has_gradient[i] = has_gradient[i] || flags[1 + i] == kYes;
    }
    if (!is_finite) return absl::OkStatus();
    std::vector<const float*> at(from.begin(), from.end());
    for (size_t i = 0; i < parts_.size(); ++i)
      HPS_RETURN_IF_ERROR(parts_[i]->Update(at, has_gradient[i] ? &factors[i] : nullptr));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return is_finite;
}

}  // namespace hps
