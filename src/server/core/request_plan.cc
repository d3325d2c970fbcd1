#include "server/core/request_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "types/names.h"

namespace hps::server {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (const int64_t dim : shape.values()) absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

absl::Status Invalid(const InputTensor& input, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("input '", Text(input.name), "': ", what));
}

// The elements that a shape has; checked, so that nothing can wrap.
absl::StatusOr<uint64_t> ElementCount(const InputTensor& input) {
  uint64_t count = 1;
  if (input.shape.dim_count > kTensorDimsMax) return Invalid(input, "too many dimensions");
  for (const int64_t dim : input.shape.values()) {
    if (dim < 0) return Invalid(input, absl::StrCat("a dimension of ", dim));
    const auto product = CheckedMultiply(count, static_cast<uint64_t>(dim));
    if (!product.has_value()) return Invalid(input, "its shape is beyond 64 bits");
    count = *product;
  }
  return count;
}

// Elements of an input of `element_bytes` each, against the bytes that came.
absl::StatusOr<uint64_t> CheckedElements(const InputTensor& input, size_t element_bytes) {
  HPS_ASSIGN_OR_RETURN(const uint64_t count, ElementCount(input));
  const auto needed = CheckedMultiply(count, element_bytes);
  if (needed.has_value() && *needed == input.bytes.size()) return count;
  return Invalid(input, absl::StrCat("shape ", ShapeText(input.shape), " of ",
                                     Text(DatatypeName(input.datatype)), " does not fit its ",
                                     input.bytes.size(), " bytes"));
}

absl::StatusOr<uint64_t> CheckedKeys(const InputTensor& input) {
  if (input.datatype != Datatype::kInt64 && input.datatype != Datatype::kUint64) {
    return Invalid(
        input, absl::StrCat("keys are INT64 or UINT64, not ", Text(DatatypeName(input.datatype))));
  }
  return CheckedElements(input, sizeof(Key));
}

absl::Status CheckKeyTotal(uint64_t key_count) {
  if (key_count <= kKeysPerCallMax) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the request asks for ", key_count, " keys; the maximum is ", kKeysPerCallMax));
}

absl::StatusOr<size_t> OutputBytes(std::string_view name, uint64_t count, uint64_t element_bytes,
                                   const PlanLimits& limits) {
  const auto bytes = CheckedMultiply(count, element_bytes);
  if (bytes.has_value() && *bytes <= limits.response_bytes_max) return static_cast<size_t>(*bytes);
  return absl::OutOfRangeError(absl::StrCat("output '", Text(name),
                                            "' would be larger than [server] response_bytes_max = ",
                                            limits.response_bytes_max, " bytes"));
}

absl::Status CheckResponse(const InferenceCall& call, const PlanLimits& limits) {
  uint64_t bytes = 0;  // each is at most the maximum, so that the sum can't wrap
  for (const OutputTensor& output : call.outputs) {
    bytes += output.byte_count;
    if (bytes > limits.response_bytes_max) {
      return absl::OutOfRangeError(
          absl::StrCat("the answer would be larger than [server] response_bytes_max = ",
                       limits.response_bytes_max, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status NoSuchTensor(const char* kind, std::string_view name, const ModelVersion& version) {
  std::vector<std::string> names;
  for (const ModelVersion::Table& table : version.tables()) names.push_back(table.name);
  return absl::NotFoundError(
      absl::StrCat("the model has no ", kind, " '", Text(name), "'", NearestNameHint(name, names)));
}

bool IsKeysRequest(const InferenceRequest& request, const ModelVersion& version) {
  const bool names_it =
      std::any_of(request.inputs.begin(), request.inputs.end(), [](const InputTensor& input) {
        return input.name == kKeysInput || input.name == kKeyCountsInput;
      });
  return names_it && HasKeysConvention(version);
}

// ---- One input per table ----

class TablePlan {
 public:
  TablePlan(const ModelVersion& version, const PlanLimits& limits, InferenceCall& call,
            PreparedCall& plan)
      : version_(version), limits_(limits), call_(call), plan_(plan) {}

  absl::Status Make() {
    if (call_.request.inputs.empty())
      return absl::InvalidArgumentError("the request has no input: give one for each table asked");
    for (const InputTensor& input : call_.request.inputs) HPS_RETURN_IF_ERROR(AddInput(input));
    HPS_RETURN_IF_ERROR(CheckKeyTotal(plan_.key_count));
    if (call_.request.output_names.empty()) {
      for (size_t i = 0; i < plan_.parts.size(); ++i) HPS_RETURN_IF_ERROR(AddRows(i));
    } else {
      for (const std::string_view name : call_.request.output_names)
        HPS_RETURN_IF_ERROR(AddOutput(name));
    }
    return DropUnwanted();
  }

 private:
  const InputTensor& InputOf(size_t part) const { return call_.request.inputs[part]; }

  absl::Status AddInput(const InputTensor& input) {
    const std::optional<uint32_t> table = version_.IndexOfTable(input.name);
    if (!table.has_value()) return NoSuchTensor("input", input.name, version_);
    for (const TablePart& part : plan_.parts) {
      if (part.table == *table) return Invalid(input, "it is given twice");
    }
    HPS_ASSIGN_OR_RETURN(const uint64_t key_count, CheckedKeys(input));
    if (input.shape.dim_count != 1 && input.shape.dim_count != 2) {
      return Invalid(
          input, absl::StrCat("keys are of shape [n] or [batch, k], not ", ShapeText(input.shape)));
    }
    HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
    plan_.parts.push_back({.table = *table,
                           .keys = input.bytes.data(),
                           .key_count = static_cast<size_t>(key_count),
                           .row_bytes = version_.tables()[*table].row_bytes,
                           .rows_output = TablePart::kNoOutput});
    plan_.key_count += static_cast<size_t>(key_count);
    return absl::OkStatus();
  }

  absl::Status AddRows(size_t number) {
    TablePart& part = plan_.parts[number];
    const InputTensor& input = InputOf(number);
    HPS_ASSIGN_OR_RETURN(const size_t bytes,
                         OutputBytes(input.name, part.key_count, part.row_bytes, limits_));
    part.rows_output = call_.outputs.size();
    OutputTensor& output = call_.outputs.emplace_back();
    output.name = input.name;
    output.datatype = Datatype::kFp32;
    output.shape = input.shape;
    output.shape.dims[output.shape.dim_count++] = version_.tables()[part.table].dim;
    output.byte_count = bytes;
    return absl::OkStatus();
  }

  absl::Status AddStatus(size_t number, std::string_view name) {
    TablePart& part = plan_.parts[number];
    part.status_output = call_.outputs.size();
    OutputTensor& output = call_.outputs.emplace_back();
    output.name = name;
    output.datatype = Datatype::kUint8;
    output.shape = InputOf(number).shape;
    output.byte_count = part.key_count;
    return absl::OkStatus();
  }

  absl::Status AddOutput(std::string_view name) {
    std::string_view table_name = name;
    const bool is_status = table_name.ends_with(kStatusSuffix);
    if (is_status) table_name.remove_suffix(kStatusSuffix.size());
    const std::optional<uint32_t> table = version_.IndexOfTable(table_name);
    if (!table.has_value()) return NoSuchTensor("output", name, version_);
    size_t number = 0;
    while (number < plan_.parts.size() && plan_.parts[number].table != *table) ++number;
    if (number == plan_.parts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", Text(name), "': the input '", Text(table_name), "' is missing"));
    }
    const TablePart& part = plan_.parts[number];
    const size_t taken = is_status ? part.status_output : part.rows_output;
    if (taken != TablePart::kNoOutput) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", Text(name), "': it is asked for twice"));
    }
    return is_status ? AddStatus(number, name) : AddRows(number);
  }

  // An input whose rows nobody asked for is not looked up.
  absl::Status DropUnwanted() {
    for (size_t i = 0; i < plan_.parts.size(); ++i) {
      const TablePart& part = plan_.parts[i];
      if (part.rows_output != TablePart::kNoOutput || part.status_output == TablePart::kNoOutput)
        continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output '", Text(InputOf(i).name), Text(kStatusSuffix),
                       "' comes with the rows: ask for output '", Text(InputOf(i).name), "' too"));
    }
    std::erase_if(plan_.parts, [](const TablePart& part) {
      return part.rows_output == TablePart::kNoOutput || part.key_count == 0;
    });
    plan_.key_count = 0;
    for (const TablePart& part : plan_.parts) plan_.key_count += part.key_count;
    return CheckResponse(call_, limits_);
  }

  const ModelVersion& version_;
  const PlanLimits& limits_;
  InferenceCall& call_;
  PreparedCall& plan_;
};

// ---- KEYS, NUMKEYS -> OUTPUT0 ----

absl::Status CheckFlat(const InputTensor& input) {
  const auto dims = input.shape.values();
  if (dims.size() == 1 || (dims.size() == 2 && dims[0] == 1)) return absl::OkStatus();
  return Invalid(input, absl::StrCat("its shape is [n] or [1, n], not ", ShapeText(input.shape)));
}

struct KeysInputs {
  const InputTensor* keys = nullptr;
  const InputTensor* counts = nullptr;
};

absl::StatusOr<KeysInputs> FindKeysInputs(const InferenceRequest& request,
                                          const ModelVersion& version) {
  KeysInputs found;
  for (const InputTensor& input : request.inputs) {
    const bool is_keys = input.name == kKeysInput;
    if (!is_keys && input.name != kKeyCountsInput) {
      if (!version.IndexOfTable(input.name).has_value())
        return NoSuchTensor("input", input.name, version);
      return Invalid(input, "a table's own input can't come with KEYS and NUMKEYS");
    }
    const InputTensor*& place = is_keys ? found.keys : found.counts;
    if (place != nullptr) return Invalid(input, "it is given twice");
    place = &input;
  }
  if (found.keys == nullptr) return absl::InvalidArgumentError("the input 'KEYS' is missing");
  if (found.counts == nullptr) return absl::InvalidArgumentError("the input 'NUMKEYS' is missing");
  return found;
}

// Which of the two outputs are asked for, and in which order.
struct KeysOutputs {
  size_t rows = TablePart::kNoOutput;
  size_t status = TablePart::kNoOutput;
};

absl::StatusOr<KeysOutputs> FindKeysOutputs(const InferenceRequest& request,
                                            const ModelVersion& version) {
  if (request.output_names.empty()) return KeysOutputs{.rows = 0};
  KeysOutputs found;
  for (size_t i = 0; i < request.output_names.size(); ++i) {
    const std::string_view name = request.output_names[i];
    if (name != kRowsOutput && name != kStatusOutput) return NoSuchTensor("output", name, version);
    size_t& place = name == kRowsOutput ? found.rows : found.status;
    if (place != TablePart::kNoOutput) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", Text(name), "': it is asked for twice"));
    }
    place = i;
  }
  if (found.rows != TablePart::kNoOutput) return found;
  return absl::InvalidArgumentError(
      "output 'OUTPUT0.status' comes with the rows: ask for output 'OUTPUT0' too");
}

void AddFlatOutput(std::string_view name, Datatype datatype, size_t byte_count,
                   InferenceCall& call) {
  OutputTensor& output = call.outputs.emplace_back();
  output.name = name;
  output.datatype = datatype;
  output.shape.dim_count = 1;
  output.shape.dims[0] = static_cast<int64_t>(byte_count / DatatypeBytes(datatype));
  output.byte_count = byte_count;
}

// The number of keys of table `index`, as the client says. Errors: INVALID_ARGUMENT.
absl::StatusOr<uint64_t> KeyCountOf(const InputTensor& counts, size_t index) {
  const auto count = LoadLittleEndian<int32_t>(counts.bytes.data() + index * sizeof(int32_t));
  if (count < 0) return Invalid(counts, absl::StrCat("element ", index, " is ", count));
  return static_cast<uint64_t>(count);
}

absl::Status PlanByKeys(const ModelVersion& version, const PlanLimits& limits, InferenceCall& call,
                        PreparedCall& plan) {
  HPS_ASSIGN_OR_RETURN(const KeysInputs inputs, FindKeysInputs(call.request, version));
  HPS_ASSIGN_OR_RETURN(const KeysOutputs outputs, FindKeysOutputs(call.request, version));
  HPS_ASSIGN_OR_RETURN(const uint64_t key_count, CheckedKeys(*inputs.keys));
  HPS_RETURN_IF_ERROR(CheckFlat(*inputs.keys));
  HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
  if (inputs.counts->datatype != Datatype::kInt32) {
    return Invalid(*inputs.counts, absl::StrCat("numbers of keys are INT32, not ",
                                                Text(DatatypeName(inputs.counts->datatype))));
  }
  HPS_ASSIGN_OR_RETURN(const uint64_t count_count,
                       CheckedElements(*inputs.counts, sizeof(int32_t)));
  HPS_RETURN_IF_ERROR(CheckFlat(*inputs.counts));
  if (count_count != version.tables().size()) {
    return Invalid(*inputs.counts, absl::StrCat(count_count, " numbers of keys, but the model has ",
                                                version.tables().size(), " tables"));
  }
  uint64_t keys_before = 0;
  uint64_t bytes_before = 0;
  for (size_t i = 0; i < count_count; ++i) {
    HPS_ASSIGN_OR_RETURN(const uint64_t of_table, KeyCountOf(*inputs.counts, i));
    const size_t row_bytes = version.tables()[i].row_bytes;
    if (of_table > key_count - keys_before) {
      return Invalid(*inputs.counts,
                     absl::StrCat("its sum is over the ", key_count, " keys that KEYS has"));
    }
    if (of_table != 0) {
      plan.parts.push_back({.table = static_cast<uint32_t>(i),
                            .keys = inputs.keys->bytes.data() + keys_before * sizeof(Key),
                            .key_count = static_cast<size_t>(of_table),
                            .row_bytes = row_bytes,
                            .rows_output = outputs.rows,
                            .rows_offset_bytes = static_cast<size_t>(bytes_before),
                            .status_output = outputs.status,
                            .status_offset = static_cast<size_t>(keys_before)});
    }
    keys_before += of_table;
    // At most kKeysPerCallMax rows of at most kRowBytesMax each, doubled by the conversion.
    bytes_before += of_table * row_bytes;
  }
  if (keys_before != key_count) {
    return Invalid(*inputs.counts,
                   absl::StrCat("its sum is ", keys_before, ", but KEYS has ", key_count, " keys"));
  }
  plan.key_count = static_cast<size_t>(key_count);
  HPS_ASSIGN_OR_RETURN(const size_t bytes, OutputBytes(kRowsOutput, bytes_before, 1, limits));
  if (outputs.status < outputs.rows)
    AddFlatOutput(kStatusOutput, Datatype::kUint8, plan.key_count, call);
  AddFlatOutput(kRowsOutput, Datatype::kFp32, bytes, call);
  if (outputs.status != TablePart::kNoOutput && outputs.status > outputs.rows)
    AddFlatOutput(kStatusOutput, Datatype::kUint8, plan.key_count, call);
  return CheckResponse(call, limits);
}

}  // namespace

bool HasKeysConvention(const ModelVersion& version) {
  return !version.IndexOfTable(kKeysInput) && !version.IndexOfTable(kKeyCountsInput) &&
         !version.IndexOfTable(kRowsOutput);
}

absl::Status PlanRequest(const ModelVersion& version, const PlanLimits& limits, InferenceCall& call,
                         PreparedCall& plan) {
  call.outputs.clear();
  plan.parts.clear();
  plan.key_count = 0;
  if (call.request.inputs.size() > kTablesPerCallMax) {
    return absl::OutOfRangeError(absl::StrCat("the request has ", call.request.inputs.size(),
                                              " inputs; the maximum is ", kTablesPerCallMax));
  }
  if (IsKeysRequest(call.request, version)) return PlanByKeys(version, limits, call, plan);
  return TablePlan(version, limits, call, plan).Make();
}

}  // namespace hps::server
