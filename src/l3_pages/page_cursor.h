// The rows of a page table in ascending key order; the implementation of PageTable::Scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "l3_pages/page_table.h"
#include "l3_pages/page_walk.h"
#include "tier/durable_tier.h"

namespace hps {

class PageCursor final : public RowCursor {
 public:
  explicit PageCursor(const PageTable& table) : table_(table) {}

  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                              std::span<Version> versions) override;

 private:
  // Goes to the next page; page_ is empty if there is none.
  absl::Status NextPage();

  const PageTable& table_;
  size_t next_part_ = 0;
  std::optional<PageWalk> walk_{};  // through the part before
  std::span<const std::byte> page_{};
  size_t page_rows_ = 0;
  size_t next_row_ = 0;  // in the page
};

}  // namespace hps
