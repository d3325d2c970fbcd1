#include "import/formats/table_writer.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/macros.h"
#include "import/formats/hugectr.h"
#include "import/formats/npy.h"
#include "types/elements.h"

namespace hps {
namespace {

std::string_view NpyDescr(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "<f4";
    case Dtype::kFloat16:
      return "<f2";
    case Dtype::kBfloat16:
      return "<u2";
  }
  return "";
}

absl::StatusOr<bool> MakeDirectory(const std::string& directory) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(directory, error);
  if (error) return FileError(error.value(), "can't create the directory", directory);
  for (const char* name : {kHugectrKeyFile, kHugectrRowFile, kNpyKeyFile, kNpyRowFile}) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory, ": expected a directory without a table, found ", path));
    }
  }
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableWriter>> TableWriter::Create(TableFormat format,
                                                                 const std::string& directory,
                                                                 uint32_t dim, Dtype dtype) {
  if (format != TableFormat::kHugectr && format != TableFormat::kNpy) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": expected the format hugectr or npy"));
  }
  HPS_ASSIGN_OR_RETURN(const bool made_directory, MakeDirectory(directory));
  const bool npy = format == TableFormat::kNpy;
  const std::string keys_path = absl::StrCat(directory, "/", npy ? kNpyKeyFile : kHugectrKeyFile);
  const std::string rows_path = absl::StrCat(directory, "/", npy ? kNpyRowFile : kHugectrRowFile);
  const uint64_t header_bytes = npy ? kNpyWrittenHeaderBytes : 0;
  absl::StatusOr<PendingFile> keys = PendingFile::Create(keys_path);
  absl::StatusOr<PendingFile> rows = keys.ok() ? PendingFile::Create(rows_path) : keys.status();
  if (!rows.ok()) {
    keys = rows.status();  // removes the key file, so that the directory can be removed
    if (made_directory) ::rmdir(directory.c_str());
    return rows.status();
  }
  std::unique_ptr<TableWriter> writer(new TableWriter(
      format, directory, {*std::move(keys), header_bytes}, {*std::move(rows), header_bytes}));
  writer->dim_ = dim;
  writer->dtype_ = dtype;
  writer->file_dtype_ = npy ? dtype : Dtype::kFloat32;
  writer->made_directory_ = made_directory;
  return writer;
}

TableWriter::~TableWriter() {
  if (finished_ || !made_directory_) return;
  // rmdir removes the directory only if it is empty.
  { const Output removed_first[] = {std::move(key_file_), std::move(row_file_)}; }
  ::rmdir(directory_.c_str());
}

absl::Status TableWriter::AppendTo(Output& output, std::span<const std::byte> bytes) {
  HPS_RETURN_IF_ERROR(output.pending.file().WriteAt(output.bytes, bytes));
  output.bytes += bytes.size();
  return absl::OkStatus();
}

absl::Status TableWriter::Append(std::span<const Key> keys, HostRows rows) {
  HPS_CHECK(rows.row_count >= keys.size() && rows.row_bytes == dim_ * ElementBytes(dtype_));
  HPS_RETURN_IF_ERROR(AppendTo(key_file_, std::as_bytes(keys)));
  row_count_ += keys.size();
  if (file_dtype_ == dtype_ && rows.stride_bytes == rows.row_bytes)
    return AppendTo(row_file_, {rows.data, keys.size() * rows.row_bytes});
  const size_t file_row_bytes = dim_ * ElementBytes(file_dtype_);
  piece_.resize(keys.size() * file_row_bytes);
  const std::span<std::byte> piece = std::as_writable_bytes(std::span(piece_));
  for (size_t i = 0; i < keys.size(); ++i) {
    ConvertElements(dtype_, {rows.row(i), rows.row_bytes}, file_dtype_,
                    piece.subspan(i * file_row_bytes, file_row_bytes));
  }
  return AppendTo(row_file_, piece);
}

absl::Status TableWriter::WriteHeaders() {
  const std::array<uint64_t, 2> shape = {row_count_, dim_};
  const std::string keys = FormatNpyHeader("<i8", std::span(shape).first(1));
  const std::string rows = FormatNpyHeader(NpyDescr(file_dtype_), shape);
  HPS_RETURN_IF_ERROR(key_file_.pending.file().WriteAt(0, AsBytes(keys)));
  return row_file_.pending.file().WriteAt(0, AsBytes(rows));
}

absl::Status TableWriter::Finish() {
  if (format_ == TableFormat::kNpy) HPS_RETURN_IF_ERROR(WriteHeaders());
  HPS_RETURN_IF_ERROR(key_file_.pending.file().Sync());
  HPS_RETURN_IF_ERROR(row_file_.pending.file().Sync());
  HPS_RETURN_IF_ERROR(Publish());
  finished_ = true;
  return absl::OkStatus();
}

absl::Status TableWriter::Publish() {
  // The key file comes last: a directory without it is not a table.
  HPS_RETURN_IF_ERROR(row_file_.pending.Publish());
  absl::Status published = key_file_.pending.Publish();
  if (published.ok()) {
    published = SyncDirectory(directory_);
    if (!published.ok()) std::remove(key_file_.pending.path().c_str());
  }
  if (!published.ok()) std::remove(row_file_.pending.path().c_str());
  return published;
}

}  // namespace hps
