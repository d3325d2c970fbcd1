#include "l3_rocksdb/import/part_writer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/salvage/key_list.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

// The pages of a written file stay in the page cache, because the commit reads them soon.
std::unique_ptr<rocksdb::SstFileWriter> NewWriter(const rocksdb::Options& options) {
  return std::make_unique<rocksdb::SstFileWriter>(rocksdb::EnvOptions(), options, nullptr, false);
}

absl::Status FinishFile(rocksdb::SstFileWriter& writer, const std::string& path, StagedFile& file) {
  rocksdb::ExternalSstFileInfo info;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(writer.Finish(&info), absl::StrCat("completing '", path, "'")));
  file.checksum = info.file_checksum;
  file.first_key = info.smallest_key;
  file.last_key = info.largest_key;
  return absl::OkStatus();
}

}  // namespace

PartWriter::PartWriter(const RocksOptions& options, const StagedTable& table, std::string directory,
                       std::string prefix)
    : table_(table),
      directory_(std::move(directory)),
      prefix_(std::move(prefix)),
      row_options_(options.for_row_files()),
      key_options_(options.for_key_list_files()),
      value_(table.spec.row_bytes() + kRowTailBytes, '\0') {
  chunk_.reserve(kKeyListChunkKeys);
}

absl::Status PartWriter::Add(std::span<const Key> keys, HostRows rows) {
  const size_t row_bytes = table_.spec.row_bytes();
  HPS_CHECK(rows.row_count >= keys.size() && (keys.empty() || rows.row_bytes == row_bytes));
  if (table_.in_page_files) return AddToPages(keys, rows);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (written_.row_count > 0 && keys[i] <= written_.last_key) {
      return absl::InvalidArgumentError(absl::StrCat("table '", table_.spec.name, "': key ",
                                                     keys[i], " follows key ", written_.last_key,
                                                     "; keys must be strictly ascending"));
    }
    std::memcpy(value_.data(), rows.row(i), row_bytes);
    FinishRow(table_.incarnation, keys[i], 0, row_bytes, value_.data() + row_bytes);
    HPS_RETURN_IF_ERROR(AddValue(keys[i], value_));
  }
  return absl::OkStatus();
}

absl::Status PartWriter::AddToPages(std::span<const Key> keys, HostRows rows) {
  if (page_writer_ == nullptr) {
    const std::string name = prefix_ + ".rows";
    written_.page_files.push_back({.name = name});
    HPS_ASSIGN_OR_RETURN(page_writer_,
                         PageFileWriter::Create(directory_ + "/" + name, table_.incarnation,
                                                table_.spec.row_bytes()));
  }
  return page_writer_->Add(keys, rows);
}

absl::Status PartWriter::AddValue(Key key, std::string_view value) {
  if (row_writer_ == nullptr) HPS_RETURN_IF_ERROR(OpenRowFile());
  char key_bytes[kKeyBytes];
  EncodeKey(key, key_bytes);
  const rocksdb::Status put =
      row_writer_->Put({key_bytes, kKeyBytes}, {value.data(), value.size()});
  if (!put.ok()) return FromRocksStatus(put, absl::StrCat("table '", table_.spec.name, "'"));
  if (written_.row_count == 0) written_.first_key = key;
  written_.last_key = key;
  ++written_.row_count;
  chunk_.push_back(key);
  if (chunk_.size() == kKeyListChunkKeys) HPS_RETURN_IF_ERROR(WriteKeyChunk());
  if (row_writer_->FileSize() >= kTableFileBytes) return FinishRowFile();
  return absl::OkStatus();
}

absl::Status PartWriter::OpenRowFile() {
  const std::string name = absl::StrCat(prefix_, "-", written_.row_files.size(), ".sst");
  written_.row_files.push_back({.name = name});
  row_writer_ = NewWriter(row_options_);
  const std::string path = directory_ + "/" + name;
  return FromRocksStatus(row_writer_->Open(path), absl::StrCat("creating '", path, "'"));
}

absl::Status PartWriter::FinishRowFile() {
  const auto writer = std::move(row_writer_);
  return FinishFile(*writer, directory_ + "/" + written_.row_files.back().name,
                    written_.row_files.back());
}

absl::Status PartWriter::WriteKeyChunk() {
  if (key_writer_ == nullptr) {
    const std::string name = prefix_ + "-keys.sst";
    written_.key_files.push_back({.name = name});
    key_writer_ = NewWriter(key_options_);
    const std::string path = directory_ + "/" + name;
    HPS_RETURN_IF_ERROR(
        FromRocksStatus(key_writer_->Open(path), absl::StrCat("creating '", path, "'")));
  }
  const KeyListRecord record = EncodeKeyList(table_.incarnation, chunk_);
  chunk_.clear();
  return FromRocksStatus(key_writer_->Put(record.key, record.value),
                         absl::StrCat("table '", table_.spec.name, "': writing its key list"));
}

absl::StatusOr<WrittenPart> PartWriter::Finish() {
  if (page_writer_ != nullptr) {
    HPS_ASSIGN_OR_RETURN(const PageFileDescription file, page_writer_->Finish());
    written_.page_files.back().record = {file.row_count, file.first_key, file.last_key};
    written_.row_count = file.row_count;
    written_.first_key = file.first_key;
    written_.last_key = file.last_key;
  }
  if (!chunk_.empty()) HPS_RETURN_IF_ERROR(WriteKeyChunk());
  if (row_writer_ != nullptr) HPS_RETURN_IF_ERROR(FinishRowFile());
  if (key_writer_ != nullptr) {
    const auto writer = std::move(key_writer_);
    StagedFile& file = written_.key_files.back();
    HPS_RETURN_IF_ERROR(FinishFile(*writer, directory_ + "/" + file.name, file));
  }
  return std::move(written_);
}

}  // namespace hps
