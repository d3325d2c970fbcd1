#include "l3_rocksdb/files/file_checksum.h"

#include <rocksdb/file_checksum.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<FileChecksum> ChecksumOf(rocksdb::Env* env, const std::string& path) {
  const std::string what = absl::StrCat("reading '", path, "'");
  std::unique_ptr<rocksdb::SequentialFile> file;
  HPS_RETURN_IF_ERROR(
      FromReadStatus(env->NewSequentialFile(path, &file, rocksdb::EnvOptions()), what));
  const auto generator =
      rocksdb::GetFileChecksumGenCrc32cFactory()->CreateFileChecksumGenerator({});
  FileChecksum result;
  std::string buffer(kReadBytes, '\0');
  rocksdb::Slice read;
  do {
    HPS_RETURN_IF_ERROR(FromReadStatus(file->Read(kReadBytes, &read, buffer.data()), what));
    generator->Update(read.data(), read.size());
    result.bytes += read.size();
  } while (!read.empty());
  generator->Finalize();
  result.checksum = generator->GetChecksum();
  return result;
}

}  // namespace hps
