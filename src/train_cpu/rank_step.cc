#include "train_cpu/rank_step.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

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
    return OutOfMemory("embedding tables: no memory for a step");
  }
}

bool AreWithin(const GradientPiece& gradients, size_t dim, float limit) {
  if (gradients.rows == nullptr) return true;
  if (gradients.stride == dim) return AllWithin({gradients.rows, gradients.row_count * dim}, limit);
  for (size_t i = 0; i < gradients.row_count; ++i) {
    if (!AllWithin({gradients.rows + i * gradients.stride, dim}, limit)) return false;
  }
  return true;
}

// Gradients of features that lie side by side: a row of each sample. Beyond so many bytes from the
// first to the last row, the rows of one feature are on more pages than the TLB has entries.
constexpr size_t kApartBytesMin = size_t{1} << 20;
constexpr size_t kGatheredRows = 64;

bool AreApart(const GradientPiece& piece, size_t dim) {
  return piece.rows != nullptr && piece.stride > dim &&
         piece.row_count * piece.stride * sizeof(float) >= kApartBytesMin;
}

}  // namespace

std::unique_ptr<RankPart> NewRankPart(const RankTable& table, const RankPlace& place) {
  if (table.holder.has_value()) return std::make_unique<LocalizedPart>(table, place);
  return std::make_unique<KeyedPart>(table, place);
}

RankStep::RankStep(const RankPlace& place, std::span<RankTable* const> tables,
                   std::vector<SetFeature> features)
    : place_(place),
      tables_(tables.begin(), tables.end()),
      features_(std::move(features)),
      order_(features_.size()),
      begins_(tables.size() + 1),
      has_gradients_(tables.size()) {
  for (const RankTable* const table : tables) {
    parts_.push_back(NewRankPart(*table, place));
    table_names_.push_back(table->shard->options().name);
  }
  for (const SetFeature& feature : features_) ++begins_[feature.table + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [this](size_t a, size_t b) { return features_[a].table < features_[b].table; });
}

absl::Status RankStep::Begin(const SetBatch& batch, bool is_training) {
  return Guarded([&] {
    HPS_RETURN_IF_ERROR(SplitBatch(batch, features_, table_names_, split_));
    batches_.clear();
    for (const size_t feature : order_) batches_.push_back(split_[feature]);
    gradient_factors_.assign(parts_.size(), 0);
    for (size_t t = 0; t < parts_.size(); ++t) {
      parts_[t]->Begin(OfTable(t, batches_), is_training);
      for (const BagBatch& feature : OfTable(t, batches_))
        gradient_factors_[t] += GradientFactor(feature);
    }
    return absl::OkStatus();
  });
}

PieceSizes RankStep::Sizes(uint32_t rank) const {
  PieceSizes total;
  total.message = 1 + features_.size();
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
  *to++ = static_cast<int64_t>(features_.size());
  for (const SetFeature& feature : features_) *to++ = feature.id;
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
  const size_t header = 1 + features_.size();
  const auto has_id = [](const SetFeature& feature, int64_t id) { return feature.id == id; };
  if (message.size() < header || message[0] != static_cast<int64_t>(features_.size()) ||
      !std::equal(features_.begin(), features_.end(), message.begin() + 1, has_id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("embedding tables: rank ", rank, " makes a step of other tables than rank ",
                     place_.rank, "; all ranks must look up the same tables in the same order"));
  }
  message = message.subspan(header);
  for (const auto& part : parts_) HPS_RETURN_IF_ERROR(part->ReadMessage(rank, message));
  return absl::OkStatus();
}

std::span<const OutputPiece> RankStep::PiecesOf(size_t table,
                                                std::span<const FeatureOutput> outputs) {
  output_pieces_.clear();
  for (size_t i = begins_[table]; i < begins_[table + 1]; ++i) {
    const FeatureOutput& output = outputs[order_[i]];
    output_pieces_.push_back({batches_[i].output_rows(), output.rows, output.stride});
  }
  return output_pieces_;
}

absl::Status RankStep::LookUp(std::span<float* const> to, std::span<const FeatureOutput> outputs) {
  HPS_CHECK(outputs.size() == features_.size());
  return Guarded([&] {
    std::vector<float*> at(to.begin(), to.end());
    for (size_t t = 0; t < parts_.size(); ++t)
      HPS_RETURN_IF_ERROR(parts_[t]->LookUp(at, PiecesOf(t, outputs)));
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
                            std::span<const FeatureOutput> outputs) {
  HPS_CHECK(outputs.size() == features_.size());
  HPS_RETURN_IF_ERROR(CheckReceived(from, &PieceSizes::rows_from));
  return Guarded([&] {
    std::vector<const float*> at = Begins(from);
    for (size_t t = 0; t < parts_.size(); ++t) parts_[t]->Pool(at, PiecesOf(t, outputs));
    return absl::OkStatus();
  });
}

// Copies gradients whose rows are far apart together, some samples of all features at a time, so
// that each page is read once.
void RankStep::GatherGradients() {
  struct Apart {
    size_t index;  // of the piece
    GradientPiece from;
    size_t dim;
    size_t to;  // in gathered_
  };
  std::vector<Apart> found;
  size_t total = 0;
  size_t rows_max = 0;
  for (size_t i = 0; i < gradient_pieces_.size(); ++i) {
    const GradientPiece& piece = gradient_pieces_[i];
    const size_t piece_dim = dim(order_[i]);
    if (!AreApart(piece, piece_dim)) continue;
    found.push_back({i, piece, piece_dim, total});
    total += piece.row_count * piece_dim;
    rows_max = std::max(rows_max, piece.row_count);
  }
  gathered_.resize(total);
  for (size_t begin = 0; begin < rows_max; begin += kGatheredRows) {
    for (const Apart& apart : found) {
      float* const to = gathered_.data() + apart.to;
      const size_t end = std::min(begin + kGatheredRows, apart.from.row_count);
      for (size_t row = begin; row < end; ++row)
        std::copy_n(apart.from.rows + row * apart.from.stride, apart.dim, to + row * apart.dim);
    }
  }
  for (const Apart& apart : found) {
    gradient_pieces_[apart.index] = {apart.from.row_count, gathered_.data() + apart.to, apart.dim};
  }
}

float RankStep::LimitOf(size_t table, float scale) const {
  // A row has the gradients of all ranks.
  return GradientLimit(gradient_factors_[table] * place_.rank_count, scale);
}

// One look at the gradients of all features, if they are the columns of an array. It finds none
// that is too large for any table, as a rule; otherwise each feature has to be looked at.
bool RankStep::AreAllWithin(std::span<const FeatureGradient> gradients, float scale) const {
  const size_t row_count = split_.empty() ? 0 : split_[0].output_rows();
  const float* column = gradients.empty() ? nullptr : gradients[0].rows;
  if (column == nullptr || row_count * gradients[0].stride * sizeof(float) >= kApartBytesMin)
    return false;
  float limit = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].rows != column || gradients[i].stride != gradients[0].stride ||
        split_[i].output_rows() != row_count)
      return false;
    column += dim(i);
    limit = std::min(limit, LimitOf(features_[i].table, scale));
  }
  const auto width = static_cast<size_t>(column - gradients[0].rows);
  return width == gradients[0].stride && AllWithin({gradients[0].rows, row_count * width}, limit);
}

absl::Status RankStep::SumGradients(std::span<const FeatureGradient> gradients, float scale,
                                    std::span<float* const> to) {
  HPS_CHECK(gradients.size() == features_.size());
  return Guarded([&] {
    std::vector<float*> at(to.begin(), to.end());
    gradient_pieces_.clear();
    for (size_t i = 0; i < order_.size(); ++i) {
      const FeatureGradient& gradient = gradients[order_[i]];
      gradient_pieces_.push_back({batches_[i].output_rows(), gradient.rows, gradient.stride});
    }
    GatherGradients();
    const bool are_all_within = AreAllWithin(gradients, scale);
    bool is_allowed = true;
    for (size_t t = 0; t < parts_.size(); ++t) {
      const std::span<const GradientPiece> pieces = OfTable(t, gradient_pieces_);
      has_gradients_[t] = false;
      for (const GradientPiece& piece : pieces) {
        has_gradients_[t] = has_gradients_[t] || piece.rows != nullptr;
        // Looked at just before they are summed: they are in the cache then.
        is_allowed =
            is_allowed && (are_all_within ||
                           AreWithin(piece, tables_[t]->shard->options().dim, LimitOf(t, scale)));
      }
      parts_[t]->SumGradients(pieces, at);
    }
    for (float* flags : at) {
      *flags++ = is_allowed ? kYes : kNo;
      for (const bool has_gradients : has_gradients_) *flags++ = has_gradients ? kYes : kNo;
    }
    return absl::OkStatus();
  });
}

template <typename Use>
absl::StatusOr<bool> RankStep::TakeGradients(std::span<const std::span<const float>> from,
                                             const Use& use) {
  HPS_RETURN_IF_ERROR(CheckReceived(from, &PieceSizes::gradients_from));
  bool is_allowed = true;
  const absl::Status status = Guarded([&] {
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
      const std::span<const float> flags = from[rank].last(FlagCount(parts_.size()));
      is_allowed = is_allowed && flags[0] == kYes;
      for (size_t t = 0; t < parts_.size(); ++t)
        has_gradients_[t] = has_gradients_[t] || flags[1 + t] == kYes;
    }
    if (!is_allowed) return absl::OkStatus();
    std::vector<const float*> at = Begins(from);
    for (size_t t = 0; t < parts_.size(); ++t) {
      const std::vector<GradientPiece> pieces = parts_[t]->ReceiveGradients(at);
      if (has_gradients_[t] && parts_[t]->step() != nullptr)
        HPS_RETURN_IF_ERROR(use(t, *parts_[t]->step(), pieces));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return is_allowed;
}

absl::StatusOr<bool> RankStep::Update(std::span<const std::span<const float>> from,
                                      std::span<const UpdateFactors> factors) {
  HPS_CHECK(factors.size() == tables_.size());
  return TakeGradients(from, [&](size_t t, StepIndex& step, std::span<const GradientPiece> pieces) {
    return tables_[t]->shard->Backward(step, pieces, factors[t]);
  });
}

absl::StatusOr<bool> RankStep::AddToSums(std::span<const std::span<const float>> from) {
  const auto add = [&](size_t t, StepIndex& step, std::span<const GradientPiece> pieces) {
    tables_[t]->sums.Add(step, pieces);
    return absl::OkStatus();
  };
  absl::StatusOr<bool> taken = TakeGradients(from, add);
  if (!taken.ok()) {
    for (RankTable* const table : tables_) table->sums.Clear();
  }
  return taken;
}

bool SumsAllow(std::span<RankTable* const> tables, float scale) {
  const float limit = GradientLimit(1, scale);
  return std::all_of(tables.begin(), tables.end(), [limit](const RankTable* table) {
    return AllWithin(table->sums.sums(), limit);
  });
}

double SquaredNorm(std::span<RankTable* const> tables, const RankPlace& place) {
  double total = 0;
  for (const RankTable* const table : tables) {
    const std::span<const Key> keys = table->sums.keys();
    const size_t dim = table->shard->options().dim;
    const float* row = table->sums.sums().data();
    for (const Key key : keys) {
      const bool is_own =
          table->holder.has_value() || OwnerOfKey(key, place.rank_count) == place.rank;
      for (size_t i = 0; is_own && i < dim; ++i) total += double{row[i]} * row[i];
      row += dim;
    }
  }
  return total;
}

absl::Status ApplySums(std::span<RankTable* const> tables, std::span<const UpdateFactors> factors) {
  HPS_CHECK(factors.size() == tables.size());
  return Guarded([&] {
    for (size_t t = 0; t < tables.size(); ++t) {
      RowSums& sums = tables[t]->sums;
      if (!sums.has_gradients()) continue;
      const GradientPiece gradients = sums.gradients();
      HPS_RETURN_IF_ERROR(tables[t]->shard->Backward(sums.Step(), {&gradients, 1}, factors[t]));
    }
    return absl::OkStatus();
  });
}

}  // namespace hps
