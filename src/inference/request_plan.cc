#include "inference/request_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "inference/prediction_plan.h"
#include "inference/row_outputs.h"
#include "inference/tensor_checks.h"
#include "types/names.h"

namespace hps {
namespace {

bool IsKeysRequest(const TensorRequest& request, const ModelVersion& version) {
  const bool names_it =
      std::any_of(request.inputs.begin(), request.inputs.end(), [](const InputTensor& input) {
        return input.name == kKeysInput || input.name == kKeyCountsInput;
      });
  return names_it && HasKeysConvention(version);
}

// The number of keys of table `index`, as the client says. Errors: INVALID_ARGUMENT.
absl::StatusOr<uint64_t> KeyCountOf(const InputTensor& counts, size_t index) {
  const auto count = LoadLittleEndian<int32_t>(counts.bytes.data() + index * sizeof(int32_t));
  if (count < 0) return Invalid(counts, absl::StrCat("element ", index, " is ", count));
  return static_cast<uint64_t>(count);
}

// Makes a plan in two steps: the inputs of either convention become parts, one for each table; then
// the outputs of either convention get places in the answer.
class RequestPlanner {
 public:
  RequestPlanner(const ModelVersion& version, const PlanLimits& limits,
                 const TensorRequest& request, std::vector<OutputTensor>& outputs,
                 ExecutionPlan& plan)
      : version_(version),
        limits_(limits),
        request_(request),
        outputs_(outputs),
        plan_(plan),
        rows_(version, limits, plan.parts, outputs) {}

  absl::Status Make() {
    const bool by_keys = IsKeysRequest(request_, version_);
    HPS_RETURN_IF_ERROR(by_keys ? AddKeysInputs() : AddTableInputs());
    if (!request_.output_names.empty()) {
      if (AsksForJointOutput()) SortParts();
      for (const std::string_view name : request_.output_names)
        HPS_RETURN_IF_ERROR(AddOutput(name));
    } else if (by_keys) {
      HPS_RETURN_IF_ERROR(rows_.AddJointRows());
    } else {
      for (size_t i = 0; i < plan_.parts.size(); ++i)
        HPS_RETURN_IF_ERROR(rows_.AddRowsOf(plan_.parts[i], request_.inputs[i].name));
    }
    HPS_RETURN_IF_ERROR(rows_.CheckStatuses());
    DropUnwanted();
    return CheckResponse(outputs_, limits_);
  }

 private:
  // ---- Inputs ----

  absl::Status AddTableInputs() {
    if (request_.inputs.empty())
      return absl::InvalidArgumentError("the request has no input: give one for each table asked");
    uint64_t key_count = 0;
    for (const InputTensor& input : request_.inputs) {
      HPS_RETURN_IF_ERROR(AddTableInput(input));
      key_count += plan_.parts.back().key_count;
      HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
    }
    return absl::OkStatus();
  }

  absl::Status AddTableInput(const InputTensor& input) {
    const std::optional<uint32_t> table = version_.IndexOfTable(input.name);
    if (!table.has_value()) return NoSuchTensor("input", input.name, version_);
    if (FindPart(*table) != nullptr) return Invalid(input, "it is given twice");
    HPS_ASSIGN_OR_RETURN(const uint64_t key_count, CheckedKeys(input));
    if (input.shape.dim_count != 1 && input.shape.dim_count != 2) {
      return Invalid(
          input, absl::StrCat("keys are of shape [n] or [batch, k], not ", ShapeText(input.shape)));
    }
    HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
    AddPart(*table, input, 0, key_count, input.shape);
    return absl::OkStatus();
  }

  absl::Status AddKeysInputs() {
    const InputTensor* keys = nullptr;
    const InputTensor* counts = nullptr;
    for (const InputTensor& input : request_.inputs) {
      const bool is_keys = input.name == kKeysInput;
      if (!is_keys && input.name != kKeyCountsInput) {
        if (!version_.IndexOfTable(input.name)) return NoSuchTensor("input", input.name, version_);
        return Invalid(input, "a table's own input can't come with KEYS and NUMKEYS");
      }
      const InputTensor*& place = is_keys ? keys : counts;
      if (place != nullptr) return Invalid(input, "it is given twice");
      place = &input;
    }
    if (keys == nullptr) return absl::InvalidArgumentError("the input 'KEYS' is missing");
    if (counts == nullptr) return absl::InvalidArgumentError("the input 'NUMKEYS' is missing");
    return DivideKeys(*keys, *counts);
  }

  absl::Status CheckCounts(const InputTensor& counts) const {
    if (counts.datatype != Datatype::kInt32) {
      return Invalid(counts, absl::StrCat("numbers of keys are INT32, not ",
                                          Text(DatatypeName(counts.datatype))));
    }
    HPS_ASSIGN_OR_RETURN(const uint64_t count, CheckedElements(counts, sizeof(int32_t)));
    HPS_RETURN_IF_ERROR(CheckFlat(counts));
    if (count == version_.tables().size()) return absl::OkStatus();
    return Invalid(counts, absl::StrCat(count, " numbers of keys, but the model has ",
                                        version_.tables().size(), " tables"));
  }

  absl::Status DivideKeys(const InputTensor& keys, const InputTensor& counts) {
    HPS_ASSIGN_OR_RETURN(const uint64_t key_count, CheckedKeys(keys));
    HPS_RETURN_IF_ERROR(CheckFlat(keys));
    HPS_RETURN_IF_ERROR(CheckKeyTotal(key_count));
    HPS_RETURN_IF_ERROR(CheckCounts(counts));
    uint64_t keys_before = 0;
    for (size_t i = 0; i < version_.tables().size(); ++i) {
      HPS_ASSIGN_OR_RETURN(const uint64_t of_table, KeyCountOf(counts, i));
      if (of_table > key_count - keys_before) {
        return Invalid(counts,
                       absl::StrCat("its sum is over the ", key_count, " keys that KEYS has"));
      }
      Shape shape{.dim_count = 1};
      shape.dims[0] = static_cast<int64_t>(of_table);
      AddPart(i, keys, keys_before, of_table, shape);
      keys_before += of_table;
    }
    if (keys_before == key_count) return absl::OkStatus();
    return Invalid(counts,
                   absl::StrCat("its sum is ", keys_before, ", but KEYS has ", key_count, " keys"));
  }

  // The keys of `input` from `first_key` on.
  void AddPart(size_t table, const InputTensor& input, uint64_t first_key, uint64_t key_count,
               const Shape& shape) {
    plan_.parts.push_back({.table = static_cast<uint32_t>(table),
                           .keys = input.bytes.data() + first_key * DatatypeBytes(input.datatype),
                           .key_type = input.datatype,
                           .key_count = static_cast<size_t>(key_count),
                           .key_shape = shape,
                           .row_bytes = version_.tables()[table].row_bytes});
  }

  TablePart* FindPart(uint32_t table) const {
    for (TablePart& part : plan_.parts) {
      if (part.table == table) return &part;
    }
    return nullptr;
  }

  // ---- Outputs ----

  bool AsksForJointOutput() const {
    const auto& names = request_.output_names;
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return IsJointOutput(version_, name); });
  }

  // OUTPUT0 has the tables in declared order.
  void SortParts() {
    std::sort(plan_.parts.begin(), plan_.parts.end(),
              [](const TablePart& a, const TablePart& b) { return a.table < b.table; });
  }

  absl::Status AddOutput(std::string_view name) {
    if (!IsNetworkOutput(name)) return rows_.Add(name);
    return absl::InvalidArgumentError(
        absl::StrCat("output '", Text(name),
                     "' is the network's: it can't be asked for with KEYS "
                     "and NUMKEYS, which do not say the keys of each sample"));
  }

  bool IsNetworkOutput(std::string_view name) const {
    if (version_.predictor() == nullptr) return false;
    const auto& outputs = version_.predictor()->signature().outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const NetworkSignature::Output& output) { return output.name == name; });
  }

  // A table whose rows are in no output is not looked up.
  void DropUnwanted() {
    std::erase_if(plan_.parts, [](const TablePart& part) {
      return part.key_count == 0 || !part.rows().is_set();
    });
    plan_.key_count = 0;
    for (const TablePart& part : plan_.parts) plan_.key_count += part.key_count;
  }

  const ModelVersion& version_;
  const PlanLimits& limits_;
  const TensorRequest& request_;
  std::vector<OutputTensor>& outputs_;
  ExecutionPlan& plan_;
  RowOutputs rows_;
};

}  // namespace

bool HasKeysConvention(const ModelVersion& version) {
  return !version.IndexOfTable(kKeysInput) && !version.IndexOfTable(kKeyCountsInput) &&
         !version.IndexOfTable(kRowsOutput);
}

absl::Status NoSuchTensor(const char* kind, std::string_view name, const ModelVersion& version) {
  std::vector<std::string> names;
  for (const ModelVersion::Table& table : version.tables()) names.push_back(table.name);
  if (HasKeysConvention(version)) {
    for (const std::string_view other : {kKeysInput, kKeyCountsInput, kRowsOutput})
      names.emplace_back(other);
  }
  if (version.predictor() != nullptr) {
    const NetworkSignature& signature = version.predictor()->signature();
    for (const NetworkSignature::Input& input : signature.inputs)
      if (!input.table.has_value()) names.push_back(input.name);
    for (const NetworkSignature::Output& output : signature.outputs) names.push_back(output.name);
  }
  return absl::NotFoundError(
      absl::StrCat("the model has no ", kind, " '", Text(name), "'", NearestNameHint(name, names)));
}

absl::Status PlanRequest(const ModelVersion& version, const PlanLimits& limits,
                         const TensorRequest& request, std::vector<OutputTensor>& outputs,
                         ExecutionPlan& plan) {
  outputs.clear();
  plan.Clear();
  if (request.inputs.size() > kTablesPerCallMax) {
    return absl::OutOfRangeError(absl::StrCat("the request has ", request.inputs.size(),
                                              " inputs; the maximum is ", kTablesPerCallMax));
  }
  HPS_RETURN_IF_ERROR(AsksForPrediction(version, request)
                          ? PlanPrediction(version, limits, request, outputs, plan)
                          : RequestPlanner(version, limits, request, outputs, plan).Make());
  plan.outputs = outputs;
  return absl::OkStatus();
}

}  // namespace hps
