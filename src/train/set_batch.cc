#include "train/set_batch.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

absl::Status ValidateSizes(const SetBatch& batch, size_t feature_count) {
  if (batch.bag_counts.size() != feature_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: bags of ", batch.bag_counts.size(), " features, not ", feature_count));
  }
  size_t bag_count = 0;
  for (const int64_t count : batch.bag_counts) {
    if (count < 0 || count >= UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("keys: a feature has ", count, " bags, not 0 to 2^32 - 2"));
    }
    bag_count += static_cast<size_t>(count);
  }
  if (batch.offsets.empty() && bag_count != batch.keys.size()) {
    return absl::InvalidArgumentError(absl::StrCat("keys: ", batch.keys.size(), " keys for ",
                                                   bag_count, " bags of one key each"));
  }
  if (!batch.offsets.empty() && batch.offsets.size() != bag_count + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: ", batch.offsets.size(), " offsets for ", bag_count, " bags"));
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.keys.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: ", batch.weights.size(), " weights for ", batch.keys.size(), " keys"));
  }
  return absl::OkStatus();
}

absl::Status SplitBatch(const SetBatch& batch, std::span<const SetFeature> features,
                        std::span<const std::string> table_names, std::vector<BagBatch>& batches) {
  HPS_RETURN_IF_ERROR(ValidateSizes(batch, features.size()));
  batches.clear();
  size_t bag = 0;  // the feature's first
  size_t key = 0;
  for (size_t i = 0; i < features.size(); ++i) {
    const SetFeature& feature = features[i];
    const auto bag_count = static_cast<size_t>(batch.bag_counts[i]);
    auto error = [&](auto... parts) {
      return absl::InvalidArgumentError(absl::StrCat("feature '", feature.name, "' of table '",
                                                     table_names[feature.table], "': ", parts...));
    };
    size_t key_end = key + bag_count;
    BagBatch& part = batches.emplace_back();
    part.pooling = feature.pooling;
    if (!batch.offsets.empty()) {
      part.offsets = batch.offsets.subspan(bag, bag_count + 1);
      const int64_t last = part.offsets.back();
      const bool is_last = i + 1 == features.size();
      const auto end = static_cast<size_t>(last);
      if (part.offsets.front() != static_cast<int64_t>(key) || last < part.offsets.front() ||
          end > batch.keys.size() || (is_last && end != batch.keys.size())) {
        return error("offsets must ascend from 0 to the number of keys, ", batch.keys.size(),
                     ", not from ", part.offsets.front(), " to ", last);
      }
      key_end = end;
    }
    part.keys = batch.keys.subspan(key, key_end - key);
    if (!batch.weights.empty() && (batch.is_weighted.empty() || batch.is_weighted[i] != 0))
      part.weights = batch.weights.subspan(key, key_end - key);
    const absl::Status status = ValidateBatch(part, "keys");
    if (!status.ok()) return error(std::string(status.message()));
    bag += bag_count;
    key = key_end;
  }
  return absl::OkStatus();
}

}  // namespace hps
