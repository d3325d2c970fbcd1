#include "l3_pages/page_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_pages/page_cursor.h"

namespace hps {
namespace {

absl::Status CheckPart(const PageTable::Part& part, const PageFile& file) {
  const PageFileDescription& found = file.description();
  if (found.row_count == part.row_count && found.first_key == part.first_key &&
      found.last_key == part.last_key) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(part.path, ": has ", found.row_count, " rows of keys ",
                                          found.first_key, " to ", found.last_key, ", expected ",
                                          part.row_count, " of keys ", part.first_key, " to ",
                                          part.last_key));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageTable>> PageTable::Open(const Options& options,
                                                           PageReader& reader) {
  std::unique_ptr<PageTable> table(new PageTable(options.row_bytes, reader));
  for (const Part& part : options.parts) {
    HPS_CHECK(part.row_count > 0);
    HPS_CHECK(table->parts_.empty() || table->parts_.back().part.last_key < part.first_key);
    absl::StatusOr<std::unique_ptr<PageFile>> file =
        PageFile::Open({part.path, options.incarnation, options.row_bytes, options.direct});
    absl::Status opened = file.status();
    if (opened.ok()) opened = CheckPart(part, **file);
    if (absl::IsNotFound(opened) || absl::IsDataLoss(opened)) {
      LogError(absl::StrCat(std::string(opened.message()), ": the rows of keys ", part.first_key,
                            " to ", part.last_key, " are lost; import the table again"));
      table->parts_.push_back({.part = part});
      continue;
    }
    if (absl::IsUnavailable(opened)) {
      LogError(absl::StrCat(std::string(opened.message()), ": the rows of keys ", part.first_key,
                            " to ", part.last_key, " can't be read until the store is reopened"));
      table->parts_.push_back({.part = part, .unreadable = opened});
      continue;
    }
    HPS_RETURN_IF_ERROR(opened);
    const size_t page_bytes = (*file)->description().shape.page_bytes;
    table->page_bytes_max_ = std::max(table->page_bytes_max_, page_bytes);
    const bool is_cached = reader.cache() != nullptr && page_bytes == kPageBlockBytes;
    table->parts_.push_back({.part = part,
                             .file = *std::move(file),
                             .cache_file = is_cached ? reader.cache()->AddFile() : 0});
  }
  return table;
}

absl::StatusOr<std::unique_ptr<RowCursor>> PageTable::Scan() const {
  return std::make_unique<PageCursor>(*this);
}

absl::StatusOr<std::vector<PageKeyRange>> PageTable::FindDamage() const {
  std::vector<PageKeyRange> damage;
  for (const OpenPart& part : parts_) {
    HPS_RETURN_IF_ERROR(part.unreadable);
    if (part.file == nullptr) {
      damage.push_back({part.part.first_key, part.part.last_key, part.part.row_count});
      continue;
    }
    HPS_ASSIGN_OR_RETURN(const std::vector<PageKeyRange> found, part.file->FindDamage());
    damage.insert(damage.end(), found.begin(), found.end());
  }
  return damage;
}

uint64_t PageTable::row_count() const {
  uint64_t count = 0;
  for (const OpenPart& part : parts_) count += part.part.row_count;
  return count;
}

uint64_t PageTable::file_bytes() const {
  uint64_t bytes = 0;
  for (const OpenPart& part : parts_) {
    if (part.file != nullptr) bytes += part.file->description().file_bytes();
  }
  return bytes;
}

bool PageTable::is_impaired() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const OpenPart& part) {
    return part.file == nullptr || part.file->is_impaired();
  });
}

}  // namespace hps
