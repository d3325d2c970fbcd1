// A table of a device as an EmbeddingShard, with arrays of the host, so that it runs the contract
// suite and can be compared with HostShard.
//
// Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gpu/cuda_resources.h"
#include "train/embedding_shard.h"
#include "train/table_set.h"

namespace hps {

// Its memory is not zeros, as that of PyTorch's allocator.
inline DeviceBuffer NewBuffer(size_t bytes) {
  DeviceBuffer buffer = *MakeDeviceBuffer("a test", bytes);
  EXPECT_EQ(cudaMemset(buffer.data(), 0x7f, bytes), cudaSuccess);
  return buffer;
}

template <typename T>
DeviceBuffer ToDevice(std::span<const T> values) {
  DeviceBuffer buffer = NewBuffer(values.size_bytes());
  EXPECT_EQ(cudaMemcpy(buffer.data(), values.data(), values.size_bytes(), cudaMemcpyDefault),
            cudaSuccess);
  return buffer;
}

// What an update writes to if it changes no row.
inline DeviceBuffer NewVerdict() {
  const std::vector<float> zero(1);
  return ToDevice(std::span<const float>(zero));
}

inline std::vector<float> ToHost(const DeviceBuffer& buffer) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  EXPECT_EQ(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDefault),
            cudaSuccess);
  return values;
}

// One feature after the other, of one table of width `dim`, in the memory of the device.
struct DeviceBatch {
  explicit DeviceBatch(std::span<const BagBatch> batches) {
    std::vector<Key> all_keys;
    std::vector<int64_t> all_offsets = {0};
    std::vector<float> all_weights;
    bool has_offsets = false;
    bool has_weights = false;
    for (const BagBatch& each : batches) {
      has_offsets = has_offsets || !each.offsets.empty();
      has_weights = has_weights || !each.weights.empty();
    }
    for (const BagBatch& each : batches) {
      for (size_t i = 1; i < each.offsets.size(); ++i)
        all_offsets.push_back(static_cast<int64_t>(all_keys.size()) + each.offsets[i] -
                              each.offsets[0]);
      for (size_t i = 0; each.offsets.empty() && i < each.keys.size(); ++i)
        all_offsets.push_back(static_cast<int64_t>(all_keys.size() + i + 1));
      bag_counts.push_back(
          static_cast<int64_t>(each.offsets.empty() ? each.keys.size() : each.offsets.size() - 1));
      all_keys.insert(all_keys.end(), each.keys.begin(), each.keys.end());
      is_weighted.push_back(each.weights.empty() ? 0 : 1);
      all_weights.insert(all_weights.end(), each.weights.begin(), each.weights.end());
      all_weights.resize(all_keys.size(), 1);
      features.push_back({.name = "f", .table = 0, .pooling = each.pooling});
      row_counts.push_back(each.output_rows());
    }
    keys = ToDevice(std::span<const Key>(all_keys));
    batch.keys = {keys.at<const Key>(0), all_keys.size()};
    if (has_offsets) {
      offsets = ToDevice(std::span<const int64_t>(all_offsets));
      batch.offsets = {offsets.at<const int64_t>(0), all_offsets.size()};
    }
    if (has_weights) {
      weights = ToDevice(std::span<const float>(all_weights));
      batch.weights = {weights.at<const float>(0), all_weights.size()};
      batch.is_weighted = is_weighted;
    }
    batch.bag_counts = bag_counts;
  }

  DeviceBuffer keys, offsets, weights;
  std::vector<int64_t> bag_counts;
  std::vector<uint8_t> is_weighted;
  std::vector<SetFeature> features;
  std::vector<size_t> row_counts;  // of the outputs
  SetBatch batch;
};

class DeviceShardStep final : public StepIndex {
 public:
  std::unique_ptr<DeviceBatch> batch;
  std::unique_ptr<TableStep> step;
  DeviceBuffer memory;
};

class DeviceShard final : public EmbeddingShard {
 public:
  static absl::StatusOr<std::unique_ptr<EmbeddingShard>> Create(const ShardOptions& options) {
    auto set = MakeDeviceTableSet(0, {options});
    if (!set.ok()) return set.status();
    return std::unique_ptr<EmbeddingShard>(new DeviceShard(*std::move(set)));
  }

  std::unique_ptr<StepIndex> NewStep() const override {
    return std::make_unique<DeviceShardStep>();
  }

  absl::Status Forward(std::span<const BagBatch> features, StepIndex* step,
                       std::span<const OutputPiece> out) override {
    for (const BagBatch& each : features) {
      const absl::Status status = ValidateBatch(each, "device");
      if (!status.ok()) return status;
    }
    if (!FitPieces(features, out)) return absl::InvalidArgumentError("outputs");
    DeviceShardStep evaluation;
    DeviceShardStep& own = step == nullptr ? evaluation : static_cast<DeviceShardStep&>(*step);
    own.batch = std::make_unique<DeviceBatch>(features);
    own.step = set_->NewStep({0}, own.batch->features);
    const StepMode mode = step == nullptr ? StepMode::kEvaluate : StepMode::kTrain;
    const absl::StatusOr<size_t> bytes = own.step->PrepareBytes(own.batch->batch, mode);
    if (!bytes.ok()) return bytes.status();
    own.memory = NewBuffer(*bytes);
    absl::Status status =
        own.step->Prepare(own.batch->batch, mode, {own.memory.data(), own.memory.bytes()}, {});
    if (!status.ok()) return status;
    const size_t dim = options().dim;
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceOutput> outputs;
    for (const size_t count : own.batch->row_counts) {
      buffers.push_back(NewBuffer(count * dim * sizeof(float)));
      outputs.push_back({buffers.back().data(), dim * sizeof(float)});
    }
    status = own.step->Gather(outputs, Dtype::kFloat32, {});
    if (!status.ok()) return status;
    const OutputPiece* piece = out.data();
    for (size_t f = 0; f < features.size(); ++f) {
      const std::vector<float> rows = ToHost(buffers[f]);
      for (size_t at = 0; at < own.batch->row_counts[f]; at += piece++->row_count) {
        for (size_t i = 0; piece->rows != nullptr && i < piece->row_count; ++i)
          std::copy_n(rows.data() + (at + i) * dim, dim, piece->rows + i * piece->stride);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Backward(StepIndex& step, std::span<const GradientPiece> gradients,
                        const UpdateFactors& factors) override {
    auto& own = static_cast<DeviceShardStep&>(step);
    if (own.step == nullptr) return absl::InvalidArgumentError("no forward");
    const size_t dim = options().dim;
    std::vector<float> all;
    size_t needed = 0;
    for (const size_t count : own.batch->row_counts) needed += count;
    for (const GradientPiece& piece : gradients) {
      for (size_t i = 0; i < piece.row_count; ++i) {
        if (piece.rows == nullptr)
          all.resize(all.size() + dim);
        else
          all.insert(all.end(), piece.rows + i * piece.stride, piece.rows + i * piece.stride + dim);
      }
    }
    if (all.size() != needed * dim) return absl::InvalidArgumentError("gradients");
    const DeviceBuffer rows = ToDevice(std::span<const float>(all));
    std::vector<DeviceGradient> places;
    size_t at = 0;
    // A feature without rows has gradients, too: the table makes an update.
    static const DeviceBuffer none = NewBuffer(1);
    for (const size_t count : own.batch->row_counts) {
      places.push_back(
          {count == 0 ? none.data() : rows.data() + at * sizeof(float), dim * sizeof(float)});
      at += count * dim;
    }
    const DeviceBuffer memory = NewBuffer(own.step->ReduceBytes());
    absl::Status status =
        own.step->Reduce({places}, factors.scale, {memory.data(), memory.bytes()}, {});
    if (!status.ok()) return status;
    const DeviceBuffer verdict = NewVerdict();
    status = own.step->Apply({&factors, 1}, verdict.at<float>(0), {});
    if (!status.ok()) return status;
    last_verdict_ = ToHost(verdict)[0];
    return absl::OkStatus();
  }

  // Whether the last Backward has changed the rows.
  bool is_updated() const { return last_verdict_ == 0; }

  const ShardOptions& options() const override { return set_->rows(0).options(); }
  absl::StatusOr<ShardRows> ReadRows(bool with_state) override {
    return set_->rows(0).ReadRows(with_state);
  }
  absl::Status WriteRows(const ShardRows& rows) override { return set_->rows(0).WriteRows(rows); }
  absl::Status EraseRows(std::span<const Key> keys) override {
    return set_->rows(0).EraseRows(keys);
  }
  absl::StatusOr<ShardDelta> CollectDelta(DeltaReader reader) override {
    return set_->rows(0).CollectDelta(reader);
  }
  void AcknowledgeDelta(DeltaReader reader, DeltaMark through) override {
    set_->rows(0).AcknowledgeDelta(reader, through);
  }
  ShardStatistics Statistics() const override { return set_->rows(0).Statistics(); }

 private:
  explicit DeviceShard(std::unique_ptr<TableSet> set) : set_(std::move(set)) {}

  static bool FitPieces(std::span<const BagBatch> features, std::span<const OutputPiece> out) {
    size_t at = 0;
    for (const BagBatch& feature : features) {
      size_t rows = 0;
      while (rows < feature.output_rows() && at < out.size()) rows += out[at++].row_count;
      if (rows != feature.output_rows()) return false;
    }
    return true;
  }

  const std::unique_ptr<TableSet> set_;
  float last_verdict_ = NAN;
};

}  // namespace hps
