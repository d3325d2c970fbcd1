#include "import/generate.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "import/formats/npy.h"
#include "import/formats/table_writer.h"
#include "import/zipf.h"
#include "types/progress_reporter.h"

namespace hps {
namespace {

constexpr size_t kBatchRows = 4096;
constexpr uint64_t kTableRowsMin = 3;  // as Criteo's smallest categorical feature
constexpr uint64_t kRequestsMax = uint64_t{1} << 32;
constexpr double kAlphaMax = 10;

// One request key in this many has no row.
constexpr uint64_t kAbsentOneIn = 100;
constexpr uint64_t kAbsentKeys = 1 << 20;

// Table number i, from 0, has rows in proportion to (i + 5)^(-5 alpha): a few huge tables and many
// tiny ones. Criteo's 26 tables are like this, with ten million rows down to three.
constexpr double kSizeShift = 5;
constexpr double kSizeExponentFactor = 5;

// Key number `index` of a table. A bijection of the index, so the keys are distinct and unordered
// without storing any.
Key KeyAt(uint64_t seed, uint32_t table, uint64_t index) {
  return static_cast<Key>(MixBits(index + MixBits(MixBits(seed) + table)));
}

std::vector<uint64_t> TableSizes(const GenerateRequest& request) {
  std::vector<double> weights(request.tables);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] =
        std::pow(static_cast<double>(i) + kSizeShift, -kSizeExponentFactor * request.alpha);
  const double weight_sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const uint64_t rows_min = std::min(kTableRowsMin, request.rows / request.tables);
  const uint64_t shared = request.rows - rows_min * request.tables;
  std::vector<uint64_t> sizes(request.tables);
  uint64_t left = shared;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto share =
        static_cast<uint64_t>(static_cast<double>(shared) * (weights[i] / weight_sum));
    sizes[i] = rows_min + std::min(share, left);
    left -= std::min(share, left);
  }
  sizes[0] += left;
  return sizes;
}

// Refuses requests that would fill the disk, before anything is written.
absl::Status CheckRoom(const GenerateRequest& request) {
  std::error_code error;
  const std::filesystem::space_info disk = std::filesystem::space(request.out, error);
  if (error) return absl::OkStatus();  // the first write reports the error
  const uint64_t request_bytes = request.requests * request.tables * sizeof(Key);
  const std::optional<uint64_t> table_bytes =
      CheckedMultiply(request.rows, sizeof(Key) + request.dim * sizeof(float));
  if (table_bytes.has_value() && *table_bytes <= disk.available &&
      request_bytes <= disk.available - *table_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(request.out, ": ", request.rows, " rows of dim ", request.dim, " and ",
                   request.requests, " requests for ", request.tables, " tables exceed the ",
                   disk.available, " free bytes of the disk"));
}

// Writes the requested files. If one of them fails, removes all that it has written.
class Generator {
 public:
  explicit Generator(const GenerateRequest& request)
      : request_(request),
        progress_(request.progress, request.rows + request.requests),
        sizes_(TableSizes(request)) {}
  ~Generator();

  absl::Status WriteAll();

 private:
  absl::Status WriteTable(uint32_t table);
  absl::Status WriteRequests();
  void AddDone(const char* step, uint64_t count) { progress_.Report(step, done_ += count); }

  const GenerateRequest& request_;
  ProgressReporter progress_;
  const std::vector<uint64_t> sizes_;
  uint64_t done_ = 0;
  // Only these are removed after an error, so that files of other processes survive.
  std::vector<std::string> written_;
};

Generator::~Generator() {
  std::error_code ignored;
  for (const std::string& path : written_) std::filesystem::remove_all(path, ignored);
}

absl::Status Generator::WriteTable(uint32_t table) {
  const GenerateRequest& request = request_;
  const std::string path = absl::StrCat(request.out, "/t", table);
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableWriter> writer,
                       TableWriter::Create(request.format, path, request.dim, Dtype::kFloat32));
  const uint64_t row_count = sizes_[table];
  std::vector<Key> keys(kBatchRows);
  std::vector<float> rows(kBatchRows * request.dim);
  const size_t row_bytes = request.dim * sizeof(float);
  for (uint64_t begin = 0; begin < row_count; begin += kBatchRows) {
    const size_t count = std::min<uint64_t>(kBatchRows, row_count - begin);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = KeyAt(request.seed, table, begin + i);
      PlantedRow(request.seed, table, keys[i],
                 std::span(rows).subspan(i * request.dim, request.dim));
    }
    HPS_RETURN_IF_ERROR(writer->Append(std::span(keys).first(count),
                                       {.data = std::as_writable_bytes(std::span(rows)).data(),
                                        .row_count = count,
                                        .row_bytes = row_bytes,
                                        .stride_bytes = row_bytes}));
    AddDone("writing tables", count);
  }
  HPS_RETURN_IF_ERROR(writer->Finish());
  written_.push_back(path);
  return absl::OkStatus();
}

absl::Status Generator::WriteRequests() {
  const GenerateRequest& request = request_;
  const std::string path = absl::StrCat(request.out, "/requests.npy");
  HPS_ASSIGN_OR_RETURN(const File file, File::CreateNew(path));
  written_.push_back(path);
  const std::vector<uint64_t> shape = {request.requests, request.tables};
  HPS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(std::string_view(FormatNpyHeader("<i8", shape)))));
  std::vector<ZipfDistribution> ranks;
  for (const uint64_t size : sizes_) ranks.emplace_back(size, request.alpha);
  RandomStream random(MixBits(~request.seed));
  std::vector<Key> lines;
  uint64_t offset = kNpyWrittenHeaderBytes;
  for (uint64_t line = 0; line < request.requests; ++line) {
    for (uint32_t table = 0; table < request.tables; ++table) {
      const bool absent = random.Next() % kAbsentOneIn == 0;
      const uint64_t index =
          absent ? sizes_[table] + random.Next() % kAbsentKeys : ranks[table].Sample(random) - 1;
      lines.push_back(KeyAt(request.seed, table, index));
    }
    if (lines.size() < kBatchRows && line + 1 < request.requests) continue;
    HPS_RETURN_IF_ERROR(file.WriteAt(offset, std::as_bytes(std::span(lines))));
    offset += lines.size() * sizeof(Key);
    AddDone("writing requests", lines.size() / request.tables);
    lines.clear();
  }
  return file.Sync();
}

absl::Status Generator::WriteAll() {
  for (uint32_t table = 0; table < request_.tables; ++table) HPS_RETURN_IF_ERROR(WriteTable(table));
  HPS_RETURN_IF_ERROR(WriteRequests());
  written_.clear();
  return absl::OkStatus();
}

absl::Status FillDirectory(const GenerateRequest& request) {
  std::error_code error;
  const bool is_empty = std::filesystem::is_empty(request.out, error);
  if (error) return FileError(error.value(), "can't read the directory", request.out);
  if (!is_empty) {
    return absl::AlreadyExistsError(
        absl::StrCat(request.out, ": expected an empty directory, found files in it"));
  }
  HPS_RETURN_IF_ERROR(CheckRoom(request));
  return Generator(request).WriteAll();
}

}  // namespace

absl::Status ValidateGenerateRequest(const GenerateRequest& request) {
  const auto error = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (request.tables == 0 || request.tables > kTablesPerCallMax)
    return error(absl::StrCat("tables is ", request.tables, ", expected 1 to ", kTablesPerCallMax));
  if (request.rows < request.tables) {
    return error(absl::StrCat("rows is ", request.rows, ", expected at least one for each of the ",
                              request.tables, " tables"));
  }
  constexpr size_t kFloatDimMax = kRowBytesMax / sizeof(float);
  if (request.dim == 0 || request.dim > kFloatDimMax)
    return error(absl::StrCat("dim is ", request.dim, ", expected 1 to ", kFloatDimMax));
  if (!(request.alpha >= 0 && request.alpha <= kAlphaMax))
    return error(absl::StrCat("alpha is ", request.alpha, ", expected 0 to ", kAlphaMax));
  if (request.requests > kRequestsMax)
    return error(
        absl::StrCat("requests is ", request.requests, ", expected at most ", kRequestsMax));
  if (request.format != TableFormat::kHugectr && request.format != TableFormat::kNpy)
    return error("the format of generated tables is hugectr or npy");
  return absl::OkStatus();
}

absl::Status GenerateTables(const GenerateRequest& request) {
  HPS_RETURN_IF_ERROR(ValidateGenerateRequest(request));
  std::error_code error;
  const bool was_there = std::filesystem::exists(request.out, error);
  std::filesystem::create_directories(request.out, error);
  if (error) return FileError(error.value(), "can't create the directory", request.out);
  const absl::Status filled = FillDirectory(request);
  // rmdir removes the directory only if it is empty.
  if (!filled.ok() && !was_there) ::rmdir(request.out.c_str());
  return filled;
}

void PlantedRow(uint64_t seed, uint32_t table, Key key, std::span<float> row) {
  RandomStream random(MixBits(MixBits(seed) + table) ^ static_cast<uint64_t>(key));
  for (float& element : row) {
    // 24 random bits: every value is exact and in [-1, 1).
    element = static_cast<float>(static_cast<int32_t>(random.Next() >> 40) - (1 << 23)) * 0x1p-23F;
  }
}

}  // namespace hps
