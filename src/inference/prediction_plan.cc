#include "inference/prediction_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "inference/request_plan.h"
#include "inference/row_outputs.h"
#include "types/names.h"

namespace hps {
namespace {

// The name of the table that an input NAME.offsets is for; empty: it is none.
std::string_view TableOfOffsets(std::string_view name) {
  if (!name.ends_with(kOffsetsSuffix)) return {};
  name.remove_suffix(kOffsetsSuffix.size());
  return name;
}

bool IsRowsOutput(const ModelVersion& version, std::string_view name) {
  if (name == kRowsOutput || name == kStatusOutput) return true;
  if (name.ends_with(kStatusSuffix)) name.remove_suffix(kStatusSuffix.size());
  return version.IndexOfTable(name).has_value();
}

bool IsDesName(std::string_view name) {
  return name == kDenseInput || name == kColumnsInput || name == kRowIndexInput;
}

// The keys of each sample that a table's slots take in HugeCTR's convention; nullopt: not known.
std::optional<uint64_t> SlotsOf(const NetworkSignature& signature, uint32_t table) {
  std::optional<uint64_t> slots;
  for (const NetworkSignature::Input& input : signature.inputs) {
    if (input.table != table) continue;
    const uint64_t of_input = input.pooling == RowPooling::kNone ? input.sample_keys : 1;
    if (of_input == 0 || (slots.has_value() && *slots != of_input)) return std::nullopt;
    slots = of_input;
  }
  return slots;
}

std::vector<uint32_t> NetworkTables(const NetworkSignature& signature) {
  std::vector<uint32_t> tables;
  for (const NetworkSignature::Input& input : signature.inputs)
    if (input.table.has_value()) tables.push_back(*input.table);
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return tables;
}

// The keys of one table in the request, and how samples share them.
struct TableBags {
  const InputTensor* keys = nullptr;
  const InputTensor* offsets_input = nullptr;
  const std::byte* key_bytes = nullptr;
  uint64_t key_count = 0;
  Shape shape{};
  uint64_t sample_keys = 1;
  std::vector<int64_t> offsets{};  // [batch + 1]; empty: sample_keys each
};

class PredictionPlanner {
 public:
  PredictionPlanner(const ModelVersion& version, const PlanLimits& limits,
                    const TensorRequest& request, std::vector<OutputTensor>& outputs,
                    ExecutionPlan& plan)
      : version_(version),
        signature_(version.predictor()->signature()),
        limits_(limits),
        request_(request),
        outputs_(outputs),
        plan_(plan),
        prediction_(plan.prediction),
        rows_(version, limits, plan.parts, outputs),
        bags_(version.tables().size()) {}

  absl::Status Make() {
    prediction_.Reset(signature_.inputs.size(), signature_.outputs.size());
    plan_.prediction_outputs.assign(signature_.outputs.size(), OutputPlace::kNone);
    plan_.is_prediction = true;
    by_des_ = IsDesRequest();
    HPS_RETURN_IF_ERROR(by_des_ ? ReadDes() : ReadByName());
    HPS_RETURN_IF_ERROR(FeedInputs());
    AddParts();
    HPS_RETURN_IF_ERROR(by_des_ && request_.output_names.empty() ? AddJointOutput() : AddOutputs());
    PlaceFirstOutput();
    HPS_RETURN_IF_ERROR(rows_.CheckStatuses());
    DropUnread();
    return CheckResponse(outputs_, limits_);
  }

 private:
  bool IsDesRequest() const {
    return HasDesConvention(version_) &&
           std::any_of(request_.inputs.begin(), request_.inputs.end(),
                       [](const InputTensor& input) { return IsDesName(input.name); });
  }

  // Every part of a request has the same batch. `input`: for the message.
  absl::Status TakeBatch(const InputTensor& input, uint64_t batch) {
    if (batch_input_ == nullptr) {
      HPS_RETURN_IF_ERROR(CheckSampleTotal(batch));
      batch_input_ = &input;
      prediction_.batch = batch;
      return absl::OkStatus();
    }
    if (prediction_.batch == batch) return absl::OkStatus();
    return Invalid(input, absl::StrCat("its batch is ", batch, ", but that of '",
                                       Text(batch_input_->name), "' is ", prediction_.batch));
  }

  // ---- By name ----

  absl::Status ReadByName() {
    for (const InputTensor& input : request_.inputs) {
      const std::string_view of_offsets = TableOfOffsets(input.name);
      if (const auto table = version_.IndexOfTable(input.name)) {
        HPS_RETURN_IF_ERROR(Once(input, bags_[*table].keys));
      } else if (const auto ragged = version_.IndexOfTable(of_offsets); ragged.has_value()) {
        HPS_RETURN_IF_ERROR(Once(input, bags_[*ragged].offsets_input));
      } else {
        HPS_RETURN_IF_ERROR(TakeSent(input));
      }
    }
    uint64_t key_total = 0;
    for (TableBags& bags : bags_) {
      if (bags.keys == nullptr && bags.offsets_input == nullptr) continue;
      HPS_RETURN_IF_ERROR(ReadBags(bags));
      key_total += bags.key_count;
      HPS_RETURN_IF_ERROR(CheckKeyTotal(key_total));
    }
    return absl::OkStatus();
  }

  static absl::Status Once(const InputTensor& input, const InputTensor*& place) {
    if (std::exchange(place, &input) == nullptr) return absl::OkStatus();
    return Invalid(input, "it is given twice");
  }

  absl::Status TakeSent(const InputTensor& tensor) {
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const NetworkSignature::Input& input = signature_.inputs[i];
      if (input.table.has_value() || input.name != tensor.name) continue;
      if (!sent_.insert({i, &tensor}).second) return Invalid(tensor, "it is given twice");
      return absl::OkStatus();
    }
    return NoSuchTensor("input", tensor.name, version_);
  }

  absl::Status ReadBags(TableBags& bags) {
    if (bags.keys == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", Text(bags.offsets_input->name), "': the input '",
                       Text(TableOfOffsets(bags.offsets_input->name)), "' is missing"));
    }
    const InputTensor& keys = *bags.keys;
    HPS_ASSIGN_OR_RETURN(bags.key_count, CheckedKeys(keys));
    bags.key_bytes = keys.bytes.data();
    bags.shape = keys.shape;
    HPS_RETURN_IF_ERROR(CheckKeyTotal(bags.key_count));
    if (bags.offsets_input != nullptr) return ReadOffsets(keys, *bags.offsets_input, bags);
    const auto dims = keys.shape.values();
    if (dims.size() != 1 && dims.size() != 2) {
      return Invalid(keys, absl::StrCat("keys are of shape [batch] or [batch, k], not ",
                                        ShapeText(keys.shape)));
    }
    bags.sample_keys = dims.size() == 1 ? 1 : static_cast<uint64_t>(dims[1]);
    return TakeBatch(keys, static_cast<uint64_t>(dims[0]));
  }

  absl::Status ReadOffsets(const InputTensor& keys, const InputTensor& offsets, TableBags& bags) {
    if (keys.shape.dim_count != 1) {
      return Invalid(keys, absl::StrCat("keys with '", Text(offsets.name),
                                        "' are of shape [n], not ", ShapeText(keys.shape)));
    }
    if (offsets.datatype != Datatype::kInt64 && offsets.datatype != Datatype::kInt32) {
      return Invalid(offsets, absl::StrCat("offsets are INT64 or INT32, not ",
                                           Text(DatatypeName(offsets.datatype))));
    }
    HPS_ASSIGN_OR_RETURN(const uint64_t count,
                         CheckedElements(offsets, DatatypeBytes(offsets.datatype)));
    if (offsets.shape.dim_count != 1 || count == 0) {
      return Invalid(offsets, absl::StrCat("offsets are of shape [batch + 1], not ",
                                           ShapeText(offsets.shape)));
    }
    HPS_RETURN_IF_ERROR(CopyOffsets(offsets, 0, count, bags));
    return TakeBatch(offsets, count - 1);
  }

  // Reads `count` offsets from element `begin` on, which must begin at 0, never go back, and end at
  // the number of keys.
  static absl::Status CopyOffsets(const InputTensor& offsets, uint64_t begin, uint64_t count,
                                  TableBags& bags) {
    bags.offsets.reserve(count);
    int64_t before = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const int64_t offset = OffsetAt(offsets, begin + i);
      if (i == 0 && offset != 0) {
        return Invalid(offsets, absl::StrCat("element ", begin, " is ", offset, ", expected 0"));
      }
      if (offset < before) {
        return Invalid(offsets, absl::StrCat("element ", begin + i, " is ", offset,
                                             ", which goes back from ", before));
      }
      bags.offsets.push_back(before = offset);
    }
    if (static_cast<uint64_t>(before) == bags.key_count) return absl::OkStatus();
    return Invalid(offsets, absl::StrCat("element ", begin + count - 1, " is ", before,
                                         ", but the table has ", bags.key_count, " keys"));
  }

  static int64_t OffsetAt(const InputTensor& offsets, uint64_t index) {
    if (offsets.datatype == Datatype::kInt32)
      return LoadLittleEndian<int32_t>(offsets.bytes.data() + index * sizeof(int32_t));
    return LoadLittleEndian<int64_t>(offsets.bytes.data() + index * sizeof(int64_t));
  }

  // ---- As HugeCTR's backend ----

  absl::Status ReadDes() {
    const InputTensor* dense = nullptr;
    const InputTensor* columns = nullptr;
    const InputTensor* index = nullptr;
    for (const InputTensor& input : request_.inputs) {
      if (!IsDesName(input.name)) {
        return Invalid(input, "it can't come with DES, CATCOLUMN and ROWINDEX");
      }
      HPS_RETURN_IF_ERROR(Once(input, input.name == kDenseInput     ? dense
                                      : input.name == kColumnsInput ? columns
                                                                    : index));
      HPS_RETURN_IF_ERROR(CheckFlat(input));
    }
    if (columns == nullptr) return absl::InvalidArgumentError("the input 'CATCOLUMN' is missing");
    if (index == nullptr) return absl::InvalidArgumentError("the input 'ROWINDEX' is missing");
    HPS_RETURN_IF_ERROR(ReadDense(dense));
    return DivideColumns(*columns, *index);
  }

  // The network's one input from the client, [batch, width], comes flat.
  absl::Status ReadDense(const InputTensor* dense) {
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const NetworkSignature::Input& input = signature_.inputs[i];
      if (input.table.has_value()) continue;
      if (dense == nullptr) return absl::InvalidArgumentError("the input 'DES' is missing");
      if (dense->datatype != Datatype::kFp32)
        return Invalid(*dense,
                       absl::StrCat("it is FP32, not ", Text(DatatypeName(dense->datatype))));
      HPS_ASSIGN_OR_RETURN(const uint64_t count, CheckedElements(*dense, sizeof(float)));
      const auto width = static_cast<uint64_t>(input.sample_dims.front());
      if (width == 0 || count % width != 0) {
        return Invalid(*dense, absl::StrCat("it has ", count, " numbers, not a multiple of the ",
                                            width, " of each sample"));
      }
      HPS_RETURN_IF_ERROR(CheckNumbers(*dense, input));
      prediction_.inputs[i].sent = dense->bytes;
      prediction_.inputs[i].sample_dims = input.sample_dims;
      return TakeBatch(*dense, count / width);
    }
    if (dense == nullptr || dense->bytes.empty()) return absl::OkStatus();
    return Invalid(*dense, "the model has no dense features");
  }

  // ROWINDEX has for each table of the network, in declared order, [batch x slots + 1] offsets into
  // the table's keys; CATCOLUMN has the tables' keys one after the other.
  absl::Status DivideColumns(const InputTensor& columns, const InputTensor& index) {
    HPS_ASSIGN_OR_RETURN(const uint64_t key_count, CheckedKeys(columns));
    HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
    if (index.datatype != Datatype::kInt32)
      return Invalid(index, absl::StrCat("it is INT32, not ", Text(DatatypeName(index.datatype))));
    HPS_ASSIGN_OR_RETURN(const uint64_t count, CheckedElements(index, sizeof(int32_t)));
    const std::vector<uint32_t> tables = NetworkTables(signature_);
    uint64_t slots = 0;
    for (const uint32_t table : tables) slots += *SlotsOf(signature_, table);
    if (batch_input_ == nullptr && count >= tables.size())
      HPS_RETURN_IF_ERROR(TakeBatch(index, (count - tables.size()) / slots));
    const uint64_t batch = prediction_.batch;
    const auto expected = CheckedMultiply(batch, slots);
    if (!expected.has_value() || *expected + tables.size() != count) {
      return Invalid(
          index, absl::StrCat("it has ", count, " offsets, but a batch of ", batch, " with ", slots,
                              " slots in ", tables.size(), " tables takes batch x slots + tables"));
    }
    uint64_t keys_before = 0;
    uint64_t begin = 0;
    for (const uint32_t table : tables) {
      const uint64_t of_table = batch * *SlotsOf(signature_, table) + 1;
      TableBags& bags = bags_[table];
      const int64_t last = OffsetAt(index, begin + of_table - 1);
      if (last < 0 || static_cast<uint64_t>(last) > key_count - keys_before) {
        return Invalid(index,
                       absl::StrCat("element ", begin + of_table - 1, " is ", last,
                                    ", but CATCOLUMN has ", key_count - keys_before, " keys left"));
      }
      bags.keys = &columns;
      bags.key_count = static_cast<uint64_t>(last);
      bags.key_bytes = columns.bytes.data() + keys_before * DatatypeBytes(columns.datatype);
      bags.shape = {.dims = {last}, .dim_count = 1};
      HPS_RETURN_IF_ERROR(CopyOffsets(index, begin, of_table, bags));
      HPS_RETURN_IF_ERROR(JoinSlots(index, begin, *SlotsOf(signature_, table), bags));
      keys_before += bags.key_count;
      begin += of_table;
    }
    if (keys_before == key_count) return absl::OkStatus();
    return Invalid(columns,
                   absl::StrCat("it has ", key_count, " keys, but ROWINDEX ends at ", keys_before));
  }

  // Slots of one key each become the keys of a sample.
  static absl::Status JoinSlots(const InputTensor& index, uint64_t begin, uint64_t slots,
                                TableBags& bags) {
    if (slots == 1) return absl::OkStatus();
    for (size_t i = 0; i + 1 < bags.offsets.size(); ++i) {
      if (bags.offsets[i + 1] - bags.offsets[i] == 1) continue;
      return Invalid(index, absl::StrCat("element ", begin + i + 1,
                                         ": each slot of this table takes one key"));
    }
    bags.offsets.clear();
    bags.sample_keys = slots;
    return absl::OkStatus();
  }

  // ---- The network's inputs ----

  absl::Status FeedInputs() {
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const NetworkSignature::Input& input = signature_.inputs[i];
      if (input.table.has_value()) {
        HPS_RETURN_IF_ERROR(FeedRows(i, input));
      } else if (!by_des_) {
        HPS_RETURN_IF_ERROR(FeedSent(i, input));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FeedRows(size_t index, const NetworkSignature::Input& input) {
    const TableBags& bags = bags_[*input.table];
    if (bags.keys == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the input '", version_.tables()[*input.table].name,
                       "' is missing: the network's '", input.name, "' gets the rows of its keys"));
    }
    PredictionInput& fed = prediction_.inputs[index];
    fed.sample_keys = bags.sample_keys;
    plan_.network_bytes += bags.key_count * version_.tables()[*input.table].row_bytes +
                           prediction_.batch * input.dim * sizeof(float);
    if (input.pooling != RowPooling::kNone) {
      fed.offsets = bags.offsets;
      return absl::OkStatus();
    }
    // Ragged bags that all have one number of keys are not ragged.
    if (!bags.offsets.empty()) {
      fed.sample_keys = prediction_.batch == 0 ? 1 : bags.key_count / prediction_.batch;
      for (size_t i = 0; i < bags.offsets.size(); ++i) {
        if (static_cast<uint64_t>(bags.offsets[i]) == i * fed.sample_keys) continue;
        return Invalid(*bags.keys, absl::StrCat("the network's '", input.name,
                                                "' takes every row by itself, so each sample has "
                                                "the same number of keys"));
      }
    }
    const bool fits =
        fed.sample_keys > 0 && (input.sample_keys == 0 || input.sample_keys == fed.sample_keys);
    if (fits || prediction_.batch == 0) return absl::OkStatus();
    return Invalid(*bags.keys,
                   absl::StrCat(fed.sample_keys, " keys for each sample, but the network's '",
                                input.name, "' takes ",
                                input.sample_keys == 0 ? std::string("at least one")
                                                       : absl::StrCat(input.sample_keys)));
  }

  absl::Status FeedSent(size_t index, const NetworkSignature::Input& input) {
    const auto found = sent_.find(index);
    if (found == sent_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the input '", input.name, "' is missing"));
    }
    const InputTensor& tensor = *found->second;
    const Datatype datatype = DatatypeOf(input.element);
    if (tensor.datatype != datatype) {
      return Invalid(tensor, absl::StrCat("it is ", Text(DatatypeName(datatype)), ", not ",
                                          Text(DatatypeName(tensor.datatype))));
    }
    HPS_RETURN_IF_ERROR(CheckedElements(tensor, DatatypeBytes(datatype)).status());
    const auto dims = tensor.shape.values();
    bool fits = dims.size() == input.sample_dims.size() + 1;
    for (size_t i = 0; fits && i < input.sample_dims.size(); ++i)
      fits = input.sample_dims[i] < 0 || input.sample_dims[i] == dims[i + 1];
    if (!fits)
      return Invalid(tensor, absl::StrCat("its shape is ", ShapeText(tensor.shape), ", expected ",
                                          ExpectedShape(input)));
    HPS_RETURN_IF_ERROR(CheckNumbers(tensor, input));
    prediction_.inputs[index].sent = tensor.bytes;
    prediction_.inputs[index].sample_dims.assign(dims.begin() + 1, dims.end());
    plan_.network_bytes += tensor.bytes.size();
    return TakeBatch(tensor, static_cast<uint64_t>(dims[0]));
  }

  static std::string ExpectedShape(const NetworkSignature::Input& input) {
    std::string text = "[batch";
    for (const int64_t dim : input.sample_dims)
      absl::StrAppend(&text, ", ", dim < 0 ? std::string("any") : absl::StrCat(dim));
    return text + "]";
  }

  static absl::Status CheckNumbers(const InputTensor& tensor,
                                   const NetworkSignature::Input& input) {
    if (HasNan(DatatypeOf(input.element), tensor.bytes))
      return Invalid(tensor, "a number of it is NaN");
    // The network computes with 32 bits.
    if (input.element == OnnxElement::kInt64 && !FitsInt32(tensor.bytes))
      return Invalid(tensor, "a number of it needs more than 32 bits");
    return absl::OkStatus();
  }

  // ---- Parts and outputs ----

  void AddParts() {
    for (size_t i = 0; i < bags_.size(); ++i) {
      const TableBags& bags = bags_[i];
      if (bags.keys == nullptr) continue;
      plan_.parts.push_back({.table = static_cast<uint32_t>(i),
                             .keys = bags.key_bytes,
                             .key_type = bags.keys->datatype,
                             .key_count = static_cast<size_t>(bags.key_count),
                             .key_shape = bags.shape,
                             .row_bytes = version_.tables()[i].row_bytes});
    }
  }

  absl::Status AddOutputs() {
    if (request_.output_names.empty()) {
      for (size_t i = 0; i < signature_.outputs.size(); ++i)
        HPS_RETURN_IF_ERROR(AddNetworkOutput(i, signature_.outputs[i].name));
      return absl::OkStatus();
    }
    for (const std::string_view name : request_.output_names) {
      const auto found =
          std::find_if(signature_.outputs.begin(), signature_.outputs.end(),
                       [&](const NetworkSignature::Output& output) { return output.name == name; });
      if (found != signature_.outputs.end()) {
        HPS_RETURN_IF_ERROR(
            AddNetworkOutput(static_cast<size_t>(found - signature_.outputs.begin()), name));
      } else if (!by_des_) {
        HPS_RETURN_IF_ERROR(rows_.Add(name));
      } else {
        HPS_RETURN_IF_ERROR(AddDesOutput(name));
      }
    }
    return absl::OkStatus();
  }

  // In HugeCTR's convention OUTPUT0 has predictions, so that it has no statuses.
  absl::Status AddDesOutput(std::string_view name) {
    if (name == kRowsOutput) return AddJointOutput();
    if (name == kStatusOutput) return NoSuchTensor("output", name, version_);
    return rows_.Add(name);
  }

  absl::Status AddNetworkOutput(size_t index, std::string_view name) {
    const NetworkSignature::Output& output = signature_.outputs[index];
    Shape shape{.dims = {static_cast<int64_t>(prediction_.batch)}, .dim_count = 1};
    if (output.sample_dims.size() >= kTensorDimsMax)
      return absl::OutOfRangeError(absl::StrCat("output '", Text(name), "': too many dimensions"));
    for (const int64_t dim : output.sample_dims) shape.dims[shape.dim_count++] = dim;
    return AddNumbers(index, name, shape, plan_.prediction_outputs[index]);
  }

  absl::Status AddJointOutput() {
    return AddNumbers(0, kRowsOutput,
                      {.dims = {static_cast<int64_t>(prediction_.batch)}, .dim_count = 1},
                      plan_.joint_prediction);
  }

  // Sets `place`, the index of the new output among all.
  absl::Status AddNumbers(size_t index, std::string_view name, const Shape& shape, size_t& place) {
    if (place != OutputPlace::kNone) return AskedTwice(name);
    HPS_ASSIGN_OR_RETURN(
        const size_t bytes,
        OutputBytes(name, prediction_.batch,
                    signature_.outputs[index].sample_elements * sizeof(float), limits_));
    place = outputs_.size();
    AddOutputTensor(outputs_, name, Datatype::kFp32, shape, bytes);
    return absl::OkStatus();
  }

  // The network writes its first output once. OUTPUT0 is a copy only where both are asked for.
  void PlaceFirstOutput() {
    size_t& first = plan_.prediction_outputs.front();
    if (first == OutputPlace::kNone)
      first = std::exchange(plan_.joint_prediction, OutputPlace::kNone);
  }

  // A table that neither the network reads nor an output has is not looked up.
  void DropUnread() {
    std::erase_if(plan_.parts, [&](const TablePart& part) {
      const bool is_read = std::any_of(
          signature_.inputs.begin(), signature_.inputs.end(),
          [&](const NetworkSignature::Input& input) { return input.table == part.table; });
      return part.key_count == 0 || !(is_read || part.rows().is_set());
    });
    for (const TablePart& part : plan_.parts) plan_.key_count += part.key_count;
  }

  const ModelVersion& version_;
  const NetworkSignature& signature_;
  const PlanLimits& limits_;
  const TensorRequest& request_;
  std::vector<OutputTensor>& outputs_;
  ExecutionPlan& plan_;
  Prediction& prediction_;
  RowOutputs rows_;
  std::vector<TableBags> bags_;                // by table
  std::map<size_t, const InputTensor*> sent_;  // by input of the network
  bool by_des_ = false;                        // as HugeCTR's backend is asked
  const InputTensor* batch_input_ = nullptr;   // the first that told the batch
};

}  // namespace

bool HasDesConvention(const ModelVersion& version) {
  if (version.predictor() == nullptr) return false;
  const NetworkSignature& signature = version.predictor()->signature();
  size_t client_inputs = 0;
  for (const NetworkSignature::Input& input : signature.inputs) {
    if (input.table.has_value()) {
      if (!SlotsOf(signature, *input.table).has_value()) return false;
      continue;
    }
    const bool is_dense = input.element == OnnxElement::kFloat32 && input.sample_dims.size() == 1 &&
                          input.sample_dims[0] > 0 && !IsDesName(input.name);
    if (!is_dense || ++client_inputs > 1) return false;
  }
  for (const std::string_view name : {kDenseInput, kColumnsInput, kRowIndexInput, kRowsOutput})
    if (version.IndexOfTable(name).has_value()) return false;
  return signature.outputs.front().sample_elements == 1 && !NetworkTables(signature).empty();
}

bool AsksForPrediction(const ModelVersion& version, const TensorRequest& request) {
  if (version.predictor() == nullptr) return false;
  const auto has_input = [&](std::string_view name) {
    return std::any_of(request.inputs.begin(), request.inputs.end(),
                       [&](const InputTensor& input) { return input.name == name; });
  };
  const bool by_keys =
      HasKeysConvention(version) && (has_input(kKeysInput) || has_input(kKeyCountsInput));
  if (by_keys) return false;
  if (request.output_names.empty() || (HasDesConvention(version) && has_input(kColumnsInput)))
    return true;
  // For rows alone, the model is asked as one without a network.
  return !std::all_of(request.output_names.begin(), request.output_names.end(),
                      [&](std::string_view name) { return IsRowsOutput(version, name); });
}

absl::Status PlanPrediction(const ModelVersion& version, const PlanLimits& limits,
                            const TensorRequest& request, std::vector<OutputTensor>& outputs,
                            ExecutionPlan& plan) {
  return PredictionPlanner(version, limits, request, outputs, plan).Make();
}

}  // namespace hps
