#include "train/embedding_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "hps/table_spec.h"

namespace hps {
namespace {

constexpr size_t kKeysMax = UINT32_MAX;

}  // namespace

absl::Status ValidateShardOptions(const ShardOptions& options) {
  if (options.name.empty()) return absl::InvalidArgumentError("embedding table: no name");
  if (options.dim == 0 || options.dim > kDimMax / sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat("embedding table ", options.name,
                                                   ": dim must be 1 to ", kDimMax / sizeof(float),
                                                   ", not ", options.dim));
  }
  if (DtypeName(options.dtype) == "unknown") {
    return absl::InvalidArgumentError(absl::StrCat("embedding table ", options.name,
                                                   ": no type of elements has the number ",
                                                   static_cast<int>(options.dtype)));
  }
  if (options.admit_after == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedding table ", options.name, ": admit_after must be at least 1"));
  }
  HPS_RETURN_IF_ERROR(ValidateInitializer(options.initializer));
  return ValidateOptimizer(options.optimizer);
}

absl::Status ValidateRows(const ShardRows& rows, const ShardOptions& options) {
  const bool with_state = !rows.update_counts.empty();
  const size_t values =
      rows.keys.size() *
      (options.dim + (with_state ? options.optimizer.state_count(options.dim) : 0));
  const size_t history = with_state ? rows.keys.size() : 0;
  if (rows.values.size() == values && rows.update_counts.size() == history &&
      rows.last_seen.size() == history && rows.pending_keys.size() == rows.pending_counts.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "embedding table ", options.name, ": ", rows.keys.size(), " rows with ", rows.values.size(),
      " values, ", rows.update_counts.size(), " update counts, ", rows.last_seen.size(),
      " steps: not of this table's dim ", options.dim, " and optimizer"));
}

absl::Status ValidateBatch(const BagBatch& batch, std::string_view what) {
  auto error = [what](auto... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(what.data(), what.size()), ": ", parts...));
  };
  if (batch.keys.size() >= kKeysMax) return error("2^32 - 1 keys or more in a batch");
  if (!batch.weights.empty() && batch.weights.size() != batch.keys.size())
    return error(batch.weights.size(), " weights for ", batch.keys.size(), " keys");
  if (!batch.weights.empty() && batch.pooling != Pooling::kSum)
    return error("weights need the pooling sum");
  if (!batch.offsets.empty() &&
      (!std::is_sorted(batch.offsets.begin(), batch.offsets.end()) ||
       static_cast<uint64_t>(batch.offsets.back()) - static_cast<uint64_t>(batch.offsets.front()) !=
           batch.keys.size()))
    return error("offsets must ascend from 0 to the number of keys");
  return absl::OkStatus();
}

}  // namespace hps
