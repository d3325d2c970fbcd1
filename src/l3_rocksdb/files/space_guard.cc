#include "l3_rocksdb/files/space_guard.h"

#include <rocksdb/env.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/public_message.h"

namespace hps {

SpaceGuard::SpaceGuard(rocksdb::Env* env, std::string directory, uint64_t free_bytes_min)
    : env_(env), directory_(std::move(directory)), free_bytes_min_(free_bytes_min) {}

std::optional<uint64_t> SpaceGuard::FreeBytes() const {
  uint64_t free_bytes = 0;
  if (!env_->GetFreeSpace(directory_, &free_bytes).ok()) return std::nullopt;
  return free_bytes;
}

absl::Status SpaceGuard::CheckRoomFor(uint64_t bytes) const {
  const std::optional<uint64_t> free_bytes = FreeBytes();
  if (!free_bytes.has_value()) return absl::OkStatus();
  if (*free_bytes >= bytes && *free_bytes - bytes >= free_bytes_min_) return absl::OkStatus();
  return DiskFull(absl::ResourceExhaustedError(
      absl::StrCat("store '", directory_, "': the disk is full: it has ", *free_bytes,
                   " bytes free; a write", bytes == 0 ? "" : absl::StrCat(" of ", bytes, " bytes"),
                   " must leave ", free_bytes_min_, " bytes free ([store] free_bytes_min)")));
}

}  // namespace hps
