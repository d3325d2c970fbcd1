#include "import/formats/npy_files.h"

#include <sys/stat.h>

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/formats/array_reader.h"
#include "import/formats/npy.h"
#include "import/formats/npy_table.h"

namespace hps {

absl::StatusOr<std::vector<Key>> ReadNpyKeys(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const NpyKeys file, OpenNpyKeys(path));
  if (file.count > kKeysPerFileMax) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": expected at most ", kKeysPerFileMax,
                                                     " keys in a file, found ", file.count));
  }
  std::vector<Key> keys(file.count);
  HPS_RETURN_IF_ERROR(ReadKeyArray(file.array, 0, keys));
  return keys;
}

absl::StatusOr<NpyRowWriter> NpyRowWriter::Create(const std::string& path, uint64_t row_count,
                                                  uint32_t dim) {
  const std::optional<uint64_t> data_bytes =
      CheckedMultiply(row_count, uint64_t{dim} * sizeof(float));
  if (!data_bytes.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", row_count, " rows of dim ", dim, " exceed the size of a file"));
  }
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    // Replace would replace a device by a file.
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a regular file to replace, or none, found ",
                     S_ISDIR(found.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
  HPS_ASSIGN_OR_RETURN(PendingFile pending, PendingFile::CreateToReplace(path));
  NpyRowWriter writer(std::move(pending), kNpyWrittenHeaderBytes + *data_bytes);
  const std::array<uint64_t, 2> shape = {row_count, dim};
  HPS_RETURN_IF_ERROR(writer.Write(AsBytes(FormatNpyHeader("<f4", shape))));
  return writer;
}

absl::Status NpyRowWriter::Commit() {
  HPS_CHECK(written_bytes_ == bytes_);
  HPS_RETURN_IF_ERROR(pending_.file().Sync());
  return pending_.Replace();
}

absl::Status NpyRowWriter::Write(std::span<const std::byte> bytes) {
  HPS_RETURN_IF_ERROR(pending_.file().WriteAt(written_bytes_, bytes));
  written_bytes_ += bytes.size();
  return absl::OkStatus();
}

}  // namespace hps
