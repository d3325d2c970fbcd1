#include "import/split_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "import/formats/pending_file.h"
#include "import/formats/table_writer.h"
#include "import/model_toml.h"
#include "network/onnx/model.h"
#include "network/onnx/network_signature.h"

namespace hps {
namespace {

constexpr size_t kBatchRows = 4096;
// Tables of a trained model; they are read into memory.
constexpr uint64_t kModelBytesMax = uint64_t{256} << 30;

ModelNetwork NetworkOf(OnnxSplit& split) {
  ModelNetwork network{.onnx = std::move(split.network)};
  for (const OnnxSplitTable& table : split.tables) {
    network.inputs.push_back(
        {.name = table.network_input, .table = table.name, .pooling = table.pooling});
  }
  return network;
}

absl::StatusOr<std::vector<TableSpec>> SpecsOf(const OnnxSplit& split) {
  std::vector<TableSpec> specs;
  for (const OnnxSplitTable& table : split.tables) {
    specs.push_back({.name = "model/" + table.name, .dim = table.dim, .dtype = table.dtype()});
    HPS_RETURN_IF_ERROR(ValidateTableSpec(specs.back()));
  }
  return specs;
}

absl::Status WriteTable(const OnnxSplitTable& table, const std::string& directory) {
  const Dtype dtype = table.dtype();
  const TableFormat format = dtype == Dtype::kFloat16 ? TableFormat::kNpy : TableFormat::kHugectr;
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableWriter> writer,
                       TableWriter::Create(format, directory, table.dim, dtype));
  const size_t row_bytes = table.dim * ElementBytes(dtype);
  std::vector<Key> keys(kBatchRows);
  // The rows of a model need not be aligned for HostRows' readers, which copy bytes.
  std::vector<std::byte> rows(kBatchRows * row_bytes);
  for (uint64_t begin = 0; begin < table.row_count; begin += kBatchRows) {
    const size_t count = std::min<uint64_t>(kBatchRows, table.row_count - begin);
    std::iota(keys.begin(), keys.end(), static_cast<Key>(begin));
    const std::span<const std::byte> piece =
        table.rows.subspan(begin * row_bytes, count * row_bytes);
    std::copy(piece.begin(), piece.end(), rows.begin());
    HPS_RETURN_IF_ERROR(writer->Append(std::span(keys).first(count), {.data = rows.data(),
                                                                      .row_count = count,
                                                                      .row_bytes = row_bytes,
                                                                      .stride_bytes = row_bytes}));
  }
  return writer->Finish();
}

absl::Status MakeModelDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError(error.value(), "can't create the directory", directory);
  for (const char* name : {kModelFile, kNetworkFile}) {
    const std::string path = directory + "/" + name;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
      return absl::AlreadyExistsError(absl::StrCat(directory, " holds a model already: ", path));
  }
  return absl::OkStatus();
}

SplitReport ReportOf(const OnnxSplit& split, const NetworkSignature& signature) {
  SplitReport report{.tables = split.tables, .remarks = split.remarks};
  for (OnnxSplitTable& table : report.tables) table.rows = {};  // of the model, which ends before
  for (const NetworkSignature::Input& input : signature.inputs)
    if (!input.table.has_value()) report.client_inputs.push_back(input.name);
  return report;
}

}  // namespace

absl::Status WriteNewFile(const std::string& path, std::string_view content) {
  HPS_ASSIGN_OR_RETURN(PendingFile pending, PendingFile::Create(path));
  HPS_RETURN_IF_ERROR(pending.file().WriteAt(0, AsBytes(content)));
  HPS_RETURN_IF_ERROR(pending.file().Sync());
  return pending.Publish();
}

absl::StatusOr<SplitReport> SplitOnnxFile(const std::string& path, const std::string& directory) {
  HPS_ASSIGN_OR_RETURN(const OnnxModel model, OnnxModel::Read(path, {.bytes_max = kModelBytesMax}));
  absl::StatusOr<OnnxSplit> split = SplitOnnx(model);
  if (!split.ok())
    return absl::Status(split.status().code(), absl::StrCat(path, ": ", split.status().message()));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableSpec> specs, SpecsOf(*split));
  const ModelNetwork network = NetworkOf(*split);
  const absl::StatusOr<NetworkSignature> signature = SignatureOf(network, specs);
  if (!signature.ok()) {
    return absl::Status(signature.status().code(),
                        absl::StrCat(path, ": ", signature.status().message()));
  }
  SplitReport report = ReportOf(*split, *signature);
  report.network_bytes = network.onnx.size();
  HPS_RETURN_IF_ERROR(MakeModelDirectory(directory));
  std::vector<std::string> names;
  for (const OnnxSplitTable& table : split->tables) {
    HPS_RETURN_IF_ERROR(WriteTable(table, directory + "/" + table.name));
    names.push_back(table.name);
  }
  HPS_RETURN_IF_ERROR(WriteNewFile(directory + "/" + kNetworkFile, network.onnx));
  std::vector<NetworkInput> inputs = network.inputs;
  for (const std::string& input : report.client_inputs) inputs.push_back({.name = input});
  const std::string name = std::filesystem::path(path).stem().string();
  HPS_RETURN_IF_ERROR(WriteNewFile(
      directory + "/" + kModelFile,
      ModelToml({.name = name, .tables = names, .has_network = true, .inputs = inputs})));
  return report;
}

}  // namespace hps
