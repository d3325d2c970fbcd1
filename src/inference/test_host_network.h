// A device in host memory that dense networks run on, in tests: a network of the CPU behind the
// interface of one on a device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "inference/pooling.h"
#include "network/dense_network.h"
#include "network/device_rows.h"
#include "testing/faults/tier_faults.h"

namespace hps {

// What the host's device is asked for, and which of it fails.
struct HostMachine {
  TierFaults cache_faults;
  uint64_t room_keys_max = uint64_t{1} << 20;
  uint64_t room_row_bytes = uint64_t{1} << 26;
  DeviceLimits limits = {.samples_max = uint64_t{1} << 18,
                         .part_samples_max = uint64_t{1} << 14,
                         .parts_total_max = uint64_t{1} << 22};
  absl::Status room_error;
  absl::Status run_error;
  // Of a call in parts, the one that the errors are of.
  static constexpr size_t kEndOfParts = SIZE_MAX;
  size_t failing_part = 0;
  int runs_from_rows = 0;
  int runs_from_host = 0;
  int parts = 0;                       // that were enqueued
  std::vector<uint64_t> part_samples;  // likewise
};

class HostRoom final : public RowRoom {
 public:
  explicit HostRoom(HostMachine& machine) : machine_(machine) {}
  uint64_t keys_max() const override { return machine_.room_keys_max; }
  uint64_t row_bytes() const override { return machine_.room_row_bytes; }
  Stream stream() const override { return {}; }
  absl::StatusOr<Room> Make(std::span<const KeyPiece> pieces, uint64_t row_bytes) override {
    if (row_bytes > this->row_bytes()) return absl::ResourceExhaustedError("rows of a batch");
    return MakeIn(rows_.front(), 0, pieces, row_bytes);
  }
  // Rows of an earlier part that the network has not read by now are lost to it.
  absl::StatusOr<Room> MakePart(std::span<const KeyPiece> pieces, uint64_t row_bytes,
                                size_t part) override {
    if (row_bytes > part_row_bytes()) return absl::ResourceExhaustedError("rows of a part");
    return MakeIn(rows_[part % kPartsMax], part, pieces, row_bytes);
  }
  absl::Status ReadStatuses(std::span<KeyStatus> to) override {
    std::copy_n(statuses_.begin(), to.size(), to.begin());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Room> MakeIn(std::vector<double>& rows, size_t part,
                              std::span<const KeyPiece> pieces, uint64_t row_bytes) {
    if (!machine_.room_error.ok() && part == machine_.failing_part) return machine_.room_error;
    keys_.clear();
    for (const KeyPiece& piece : pieces) {
      keys_.resize(keys_.size() + piece.key_count);
      std::memcpy(keys_.data() + keys_.size() - piece.key_count, piece.keys,
                  piece.key_count * sizeof(Key));
    }
    if (keys_.size() > keys_max()) return absl::ResourceExhaustedError("keys of a batch");
    std::fill(rows.begin(), rows.end(), -1);
    rows.assign(row_bytes / sizeof(double) + 1, -1);
    statuses_.assign(keys_.size(), KeyStatus::kAbsent);
    return Room{.keys = keys_.data(),
                .rows = std::as_writable_bytes(std::span(rows)).data(),
                .statuses = statuses_.data()};
  }
  HostMachine& machine_;
  std::vector<Key> keys_;
  std::array<std::vector<double>, kPartsMax> rows_;
  std::vector<KeyStatus> statuses_;
};

// A network of the CPU behind the interface of one on a device.
class HostDeviceSession final : public DenseSession {
 public:
  HostDeviceSession(HostMachine& machine, DenseNetwork& network)
      : machine_(machine), network_(network), session_(*network.NewSession()), room_(machine) {}

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    ++machine_.runs_from_host;
    if (!machine_.run_error.ok()) return machine_.run_error;
    return session_->Run(inputs, outputs);
  }
  RowRoom* row_room() override { return &room_; }
  DeviceLimits device_limits() const override { return machine_.limits; }
  absl::Status RunFromRows(uint32_t samples, std::span<const FedInput> inputs,
                           std::span<std::byte* const> outputs) override {
    ++machine_.runs_from_rows;
    if (!machine_.run_error.ok()) return machine_.run_error;
    return RunRows(samples, inputs, outputs[0]);
  }

  absl::Status BeginParts(uint32_t samples) override {
    parts_.clear();
    part_count_ = 0;
    scores_.assign(samples * ScoreBytes(), std::byte{0xff});
    return absl::OkStatus();
  }
  // Runs each part as late as it may.
  absl::Status EnqueuePart(const SampleRange& part, std::span<const FedInput> inputs) override {
    if (!machine_.run_error.ok() && part_count_ == machine_.failing_part) return machine_.run_error;
    ++part_count_;
    ++machine_.parts;
    machine_.part_samples.push_back(part.count);
    EnqueuedPart& enqueued = parts_.emplace_back();
    enqueued.samples = part;
    enqueued.memory.resize(inputs.size());
    enqueued.bags.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      FedInput& input = enqueued.inputs.emplace_back(inputs[i]);
      std::vector<BagPlace>& bags = enqueued.bags[i];
      bags.assign(input.bags.begin(), input.bags.end());
      std::vector<std::byte>& sent = enqueued.memory[i];
      sent.assign(input.sent.begin(), input.sent.end());
      input.sent = sent;
      input.bags = bags;
    }
    return RunParts(RowRoom::kPartsMax - 1);
  }
  absl::Status EndParts(std::span<std::byte* const> outputs) override {
    ++machine_.runs_from_rows;
    if (!machine_.run_error.ok() && machine_.failing_part == HostMachine::kEndOfParts)
      return machine_.run_error;
    HPS_RETURN_IF_ERROR(RunParts(0));
    std::memcpy(outputs[0], scores_.data(), scores_.size());
    return absl::OkStatus();
  }

 private:
  struct EnqueuedPart {
    SampleRange samples{};
    std::vector<FedInput> inputs{};
    std::vector<std::vector<BagPlace>> bags{};
    std::vector<std::vector<std::byte>> memory{};  // what was sent
  };

  absl::Status RunParts(size_t left) {
    while (parts_.size() > left) {
      const EnqueuedPart part = std::move(parts_.front());
      parts_.pop_front();
      HPS_RETURN_IF_ERROR(RunRows(static_cast<uint32_t>(part.samples.count), part.inputs,
                                  scores_.data() + part.samples.begin * ScoreBytes()));
    }
    return absl::OkStatus();
  }

  uint64_t ScoreBytes() const {
    return static_cast<uint64_t>(network_.outputs()[0].dims.back()) * sizeof(float);
  }

  absl::Status RunRows(uint32_t samples, std::span<const FedInput> inputs, std::byte* scores) {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<int64_t>> dims;
    std::vector<DenseTensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values.push_back(ValuesOf(inputs[i], samples));
      dims.push_back(network_.inputs()[i].dims);
      dims.back().front() = samples;
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      tensors.push_back({std::as_writable_bytes(std::span(values[i])).data(), dims[i]});
    std::vector<int64_t> score_dims = network_.outputs()[0].dims;
    score_dims.front() = samples;
    const DenseTensor output{scores, score_dims};
    return session_->Run(tensors, {&output, 1});
  }

  static std::vector<float> ValuesOf(const FedInput& input, uint32_t samples) {
    if (input.dim == 0) {
      std::vector<float> sent(input.sent.size() / sizeof(float));
      std::memcpy(sent.data(), input.sent.data(), input.sent.size());
      return sent;
    }
    std::vector<float> values;
    for (uint64_t sample = 0; sample < samples; ++sample) {
      BagPlace bag{static_cast<uint32_t>(sample * input.sample_rows),
                   static_cast<uint32_t>((sample + 1) * input.sample_rows)};
      if (!input.bags.empty()) bag = input.bags[sample];
      const float* const rows = input.rows + uint64_t{bag.begin} * input.dim;
      if (input.pooling == RowPooling::kNone) {
        values.insert(values.end(), rows, rows + input.sample_rows * input.dim);
        continue;
      }
      values.resize(values.size() + input.dim);
      PoolRows({.rows = rows, .dim = input.dim, .sample_keys = bag.end - bag.begin}, input.pooling,
               1, values.data() + values.size() - input.dim);
    }
    return values;
  }

  HostMachine& machine_;
  DenseNetwork& network_;
  const std::unique_ptr<DenseSession> session_;
  HostRoom room_;
  std::deque<EnqueuedPart> parts_;  // that are not run yet
  size_t part_count_ = 0;           // of the call
  std::vector<std::byte> scores_;   // of the call
};

class HostDeviceNetwork final : public DenseNetwork {
 public:
  HostDeviceNetwork(HostMachine& machine, std::unique_ptr<DenseNetwork> network)
      : machine_(machine), network_(std::move(network)) {}
  std::span<const OnnxValue> inputs() const override { return network_->inputs(); }
  std::span<const OnnxValue> outputs() const override { return network_->outputs(); }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    return std::make_unique<HostDeviceSession>(machine_, *network_);
  }

 private:
  HostMachine& machine_;
  const std::unique_ptr<DenseNetwork> network_;
};

}  // namespace hps
