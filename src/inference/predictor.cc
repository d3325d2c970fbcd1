#include "inference/predictor.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "inference/network_check.h"
#include "inference/pooling.h"
#include "network/device_rows.h"

namespace hps {
namespace {

uint64_t SampleCount(std::span<const Prediction* const> group) {
  uint64_t count = 0;
  for (const Prediction* request : group) count += request->batch;
  return count;
}

// Whether the network can run both at once: all dimensions but the batch are the same.
bool HaveSameShape(const NetworkSignature& signature, const Prediction& a, const Prediction& b) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const NetworkSignature::Input& input = signature.inputs[i];
    if (!input.table.has_value()) {
      if (a.inputs[i].sample_dims != b.inputs[i].sample_dims) return false;
    } else if (input.pooling == RowPooling::kNone) {
      if (a.inputs[i].sample_keys != b.inputs[i].sample_keys) return false;
    }
  }
  return true;
}

// Rows that go in as they are: each sample has the rows of one value.
bool GoesInAsItIs(const NetworkSignature::Input& input, const PredictionInput& of) {
  return of.offsets.empty() && (input.pooling == RowPooling::kNone || of.sample_keys == 1);
}

}  // namespace

void PredictionSession::Prepare() {
  values_.resize(signature_.inputs.size());
  own_.resize(signature_.inputs.size());
  own_outputs_.resize(signature_.outputs.size());
}

// Requests that the network can run together, one group after the other.
absl::Status PredictionSession::RunGroups(Group requests,
                                          absl::Status (PredictionSession::*run)(Group)) {
  return Try([&] {
    Prepare();
    while (!requests.empty()) {
      size_t count = 1;
      while (count < requests.size() &&
             HaveSameShape(signature_, *requests.front(), *requests[count])) {
        ++count;
      }
      HPS_RETURN_IF_ERROR((this->*run)(requests.first(count)));
      requests = requests.subspan(count);
    }
    return absl::OkStatus();
  });
}

absl::Status PredictionSession::Run(Group requests) {
  return RunGroups(requests, &PredictionSession::RunGroup);
}

absl::Status PredictionSession::RunFromRows(Group requests) {
  return RunGroups(requests, &PredictionSession::RunGroupFromRows);
}

absl::Status PredictionSession::RunGroup(Group group) {
  for (size_t i = 0; i < signature_.inputs.size(); ++i) Gather(i, group);
  const uint64_t total = SampleCount(group);
  for (uint64_t begin = 0; begin < total; begin += kSamplesMax)
    HPS_RETURN_IF_ERROR(RunSamples(group, begin, std::min(kSamplesMax, total - begin)));
  return absl::OkStatus();
}

absl::Status PredictionSession::RunGroupFromRows(Group group) {
  for (size_t i = 0; i < signature_.inputs.size(); ++i)
    if (!signature_.inputs[i].table.has_value()) GatherSent(i, group);
  const uint64_t total = SampleCount(group);
  const uint64_t samples_max = device_limits().samples_max;
  HPS_CHECK(samples_max > 0);
  for (uint64_t begin = 0; begin < total; begin += samples_max) {
    const uint64_t count = std::min(samples_max, total - begin);
    FeedFromRows(group, begin, count);
    HPS_RETURN_IF_ERROR(
        session_->RunFromRows(static_cast<uint32_t>(count), fed_, OutputsOf(group, begin, count)));
    if (group.size() > 1) Deal(group, begin, count);
  }
  return absl::OkStatus();
}

// Sets fed_. REQUIRES: GatherSent.
void PredictionSession::FeedFromRows(Group group, uint64_t begin, uint64_t count) {
  fed_.clear();
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    const Values& values = values_[i];
    fed_.push_back(signature_.inputs[i].table.has_value()
                       ? feed_.Rows(i, group, begin, count)
                       : FedInput{.sent = {values.data + begin * values.sample_bytes,
                                           count * values.sample_bytes}});
  }
}

std::span<std::byte* const> PredictionSession::OutputsOf(Group group, uint64_t begin,
                                                         uint64_t count) {
  output_pointers_.clear();
  for (size_t i = 0; i < signature_.outputs.size(); ++i)
    output_pointers_.push_back(OutputOf(i, group, begin, count));
  return output_pointers_;
}

// The device's outputs of all parts lie in the host's memory until the end.
bool PredictionSession::TakesParts(const Prediction& request) {
  return row_room() != nullptr && request.batch <= device_limits().parts_total_max;
}

absl::Status PredictionSession::BeginParts(const Prediction& request) {
  return session_->BeginParts(static_cast<uint32_t>(request.batch));
}

absl::Status PredictionSession::EnqueuePart(const Prediction& part, uint64_t begin) {
  Prepare();
  const Prediction* const group[] = {&part};
  for (size_t i = 0; i < signature_.inputs.size(); ++i)
    if (!signature_.inputs[i].table.has_value()) GatherSent(i, group);
  FeedFromRows(group, 0, part.batch);
  return session_->EnqueuePart({.begin = begin, .count = part.batch}, fed_);
}

absl::Status PredictionSession::EndParts(const Prediction& request) {
  Prepare();
  const Prediction* const group[] = {&request};
  return session_->EndParts(OutputsOf(group, 0, request.batch));
}

// Memory of this session for the values of an input.
std::span<float> PredictionSession::Own(size_t input, size_t bytes) {
  std::vector<float>& own = own_[input];
  // Doubles are the widest elements; the allocator aligns to 16 bytes.
  if (own.size() * sizeof(float) < bytes) own.resize(bytes / sizeof(float) + 1);
  return own;
}

void PredictionSession::Gather(size_t input, std::span<const Prediction* const> group) {
  if (signature_.inputs[input].table.has_value()) {
    GatherRows(input, group);
  } else {
    GatherSent(input, group);
  }
}

void PredictionSession::GatherRows(size_t index, std::span<const Prediction* const> group) {
  const NetworkSignature::Input& input = signature_.inputs[index];
  const PredictionInput& first = group.front()->inputs[index];
  const uint64_t sample_rows = input.pooling == RowPooling::kNone ? first.sample_keys : 1;
  Values& values = values_[index];
  values.sample_bytes = sample_rows * input.dim * sizeof(float);
  values.dims = {0};
  if (input.sample_dims.size() == 2) values.dims.push_back(static_cast<int64_t>(sample_rows));
  values.dims.push_back(input.sample_dims.size() == 2
                            ? int64_t{input.dim}
                            : static_cast<int64_t>(sample_rows * input.dim));
  const float* next = first.rows;
  const bool lie_together = std::all_of(group.begin(), group.end(), [&](const Prediction* request) {
    const PredictionInput& of = request->inputs[index];
    const bool follows = of.rows == next && GoesInAsItIs(input, of);
    if (next != nullptr) next += request->batch * sample_rows * input.dim;
    return follows;
  });
  if (lie_together && first.rows != nullptr) {
    values.data = std::as_bytes(std::span(first.rows, 1)).data();
    return;
  }
  const std::span<float> own = Own(index, SampleCount(group) * values.sample_bytes);
  values.data = std::as_bytes(own).data();
  float* to = own.data();
  for (const Prediction* request : group) {
    const PredictionInput& of = request->inputs[index];
    const size_t bytes = request->batch * values.sample_bytes;
    if (GoesInAsItIs(input, of)) {
      if (bytes > 0) std::memcpy(to, of.rows, bytes);
    } else {
      PoolRows(
          {.rows = of.rows, .dim = input.dim, .sample_keys = of.sample_keys, .offsets = of.offsets},
          input.pooling, request->batch, to);
    }
    to += bytes / sizeof(float);
  }
}

void PredictionSession::GatherSent(size_t index, std::span<const Prediction* const> group) {
  const NetworkSignature::Input& input = signature_.inputs[index];
  const PredictionInput& first = group.front()->inputs[index];
  const size_t element_bytes = OnnxElementBytes(static_cast<int32_t>(input.element));
  Values& values = values_[index];
  values.dims.assign(1, 0);
  values.dims.insert(values.dims.end(), first.sample_dims.begin(), first.sample_dims.end());
  values.sample_bytes = element_bytes;
  for (const int64_t dim : first.sample_dims) values.sample_bytes *= static_cast<size_t>(dim);
  // One request's values that are aligned for any element go in as they are.
  if (group.size() == 1 && AsAligned<double>(first.sent.data()) != nullptr) {
    values.data = first.sent.data();
    return;
  }
  std::byte* to =
      std::as_writable_bytes(Own(index, SampleCount(group) * values.sample_bytes)).data();
  values.data = to;
  for (const Prediction* request : group) {
    const std::span<const std::byte> sent = request->inputs[index].sent;
    if (!sent.empty()) std::memcpy(to, sent.data(), sent.size());
    to += sent.size();
  }
}

absl::Status PredictionSession::RunSamples(std::span<const Prediction* const> group, uint64_t begin,
                                           uint64_t count) {
  const size_t input_count = signature_.inputs.size();
  tensors_.clear();
  for (Values& values : values_) {
    values.dims.front() = static_cast<int64_t>(count);
    // An input is not written; the engine's interface has one type for both.
    std::byte* const data = const_cast<std::byte*>(values.data) + begin * values.sample_bytes;
    tensors_.push_back({.data = data, .dims = values.dims});
  }
  std::vector<std::vector<int64_t>> dims;
  dims.reserve(signature_.outputs.size());
  for (size_t i = 0; i < signature_.outputs.size(); ++i) {
    std::vector<int64_t>& of_output = dims.emplace_back(1, static_cast<int64_t>(count));
    const std::vector<int64_t>& sample = signature_.outputs[i].sample_dims;
    of_output.insert(of_output.end(), sample.begin(), sample.end());
    tensors_.push_back({.data = OutputOf(i, group, begin, count), .dims = of_output});
  }
  const std::span<const DenseTensor> all = tensors_;
  HPS_RETURN_IF_ERROR(session_->Run(all.first(input_count), all.subspan(input_count)));
  if (group.size() > 1) Deal(group, begin, count);
  return absl::OkStatus();
}

// Of a single request, its own memory; else this session's, from which Deal copies.
std::byte* PredictionSession::OutputOf(size_t output, std::span<const Prediction* const> group,
                                       uint64_t begin, uint64_t count) {
  const uint64_t elements = signature_.outputs[output].sample_elements;
  std::byte* const wanted = group.front()->outputs[output];
  if (group.size() == 1 && wanted != nullptr) return wanted + begin * elements * sizeof(float);
  std::vector<float>& own = own_outputs_[output];
  own.resize(std::max<size_t>(own.size(), count * elements));
  return std::as_writable_bytes(std::span(own)).data();
}

// Copies the outputs of samples [begin, begin + count) of the group to their requests.
void PredictionSession::Deal(std::span<const Prediction* const> group, uint64_t begin,
                             uint64_t count) {
  uint64_t request_begin = 0;
  for (const Prediction* request : group) {
    const uint64_t from = std::max(begin, request_begin);
    const uint64_t to = std::min(begin + count, request_begin + request->batch);
    for (size_t i = 0; from < to && i < signature_.outputs.size(); ++i) {
      if (request->outputs[i] == nullptr) continue;
      const uint64_t elements = signature_.outputs[i].sample_elements;
      std::memcpy(request->outputs[i] + (from - request_begin) * elements * sizeof(float),
                  own_outputs_[i].data() + (from - begin) * elements,
                  (to - from) * elements * sizeof(float));
    }
    request_begin += request->batch;
  }
}

absl::StatusOr<std::unique_ptr<Predictor>> Predictor::Make(
    std::shared_ptr<const ModelNetwork> network, std::span<const TableSpec> tables,
    DeviceWishes wishes, const std::string& model) {
  HPS_ASSIGN_OR_RETURN(NetworkSignature signature, SignatureOf(*network, tables));
  HPS_RETURN_IF_ERROR(CheckNetworkApart(*network));
  wishes.batch_max = PredictionSession::kSamplesMax;
  HPS_ASSIGN_OR_RETURN(
      std::unique_ptr<DenseNetwork> dense,
      MakeDenseNetwork(*network, {.sessions = static_cast<uint32_t>(wishes.session_count),
                                  .batch_max = PredictionSession::kSamplesMax}));
  std::set<uint32_t> read;
  for (const NetworkSignature::Input& input : signature.inputs) {
    if (!input.table.has_value()) continue;
    read.insert(*input.table);
    wishes.row_bytes = std::max(wishes.row_bytes, input.dim * sizeof(float));
  }
  wishes.table_count = read.size();
  std::unique_ptr<Predictor> predictor(
      new Predictor(std::move(network), std::move(signature), model, std::move(dense)));
  HPS_RETURN_IF_ERROR(predictor->places_.AddDevices(predictor->network(), wishes));
  return predictor;
}

absl::StatusOr<std::unique_ptr<PredictionSession>> Predictor::NewSession(int device) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<DenseSession> session, places_.NewSession(device));
  return std::make_unique<PredictionSession>(signature_, std::move(session));
}

}  // namespace hps
