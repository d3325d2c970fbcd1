#include "l3_rocksdb/files/space_reserve.h"

#include <rocksdb/env.h>

#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

// Random bytes, which no file system can compress.
std::string ReserveContent() {
  std::mt19937_64 random(kSpaceReserveBytes);
  std::string content(kSpaceReserveBytes, '\0');
  for (size_t at = 0; at < content.size(); at += sizeof(uint64_t))
    StoreLittleEndian<uint64_t>(content.data() + at, random());
  return content;
}

absl::Status WriteReserve(rocksdb::Env* env, const std::string& path) {
  std::unique_ptr<rocksdb::WritableFile> file;
  rocksdb::Status status = env->NewWritableFile(path, &file, rocksdb::EnvOptions());
  if (status.ok()) status = file->Append(ReserveContent());
  // Some file systems allocate the space only here.
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  return FromRocksStatus(status, absl::StrCat("writing '", path, "'"));
}

}  // namespace

SpaceReserve::SpaceReserve(rocksdb::Env* env, const std::string& store, const SpaceGuard& guard)
    : env_(env), path_(store + "/hps.reserve"), guard_(guard) {}

void SpaceReserve::Ensure() {
  MutexLock lock(mutex_);
  EnsureLocked();
}

void SpaceReserve::EnsureLocked() {
  if (loan_count_ > 0) return;
  uint64_t bytes = 0;
  const bool is_there = env_->GetFileSize(path_, &bytes).ok();
  if (is_there && bytes == kSpaceReserveBytes) return;
  if (!guard_.CheckRoomFor(kSpaceReserveBytes).ok()) return;
  const absl::Status written = WriteReserve(env_, path_);
  if (written.ok()) return;
  LogWarning(written.ToString());
  RemoveFile(env_, path_).IgnoreError();
}

SpaceReserve::Loan SpaceReserve::Lend() {
  MutexLock lock(mutex_);
  ++loan_count_;
  const absl::Status removed = RemoveFile(env_, path_);
  if (!removed.ok()) LogWarning(removed.ToString());
  return Loan(this);
}

void SpaceReserve::Return() {
  MutexLock lock(mutex_);
  --loan_count_;
  EnsureLocked();
}

}  // namespace hps
