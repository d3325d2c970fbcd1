#include "l2_memory/memory_tier.h"

#include <utility>

#include "base/macros.h"
#include "l2_memory/memory_table.h"
#include "l2_memory/table_layout.h"

namespace hps {
namespace {

class MemoryTier final : public LossyTier {
 public:
  MemoryTier(const MemoryTierOptions& options, std::unique_ptr<PageAllocator> pages)
      : options_(options), pages_(std::move(pages)) {
    HPS_CHECK(options.evict_from > 0 && options.evict_from <= 1 && options.evict_to > 0 &&
              options.evict_to <= options.evict_from);
  }

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec, Incarnation,
                                                        uint64_t bytes_max) override {
    HPS_RETURN_IF_ERROR(ValidateTableSpec(spec));
    HPS_ASSIGN_OR_RETURN(const TableLayout layout,
                         LayoutForBytes(spec.row_bytes(), bytes_max, options_));
    return MemoryTable::Create(
        layout, bytes_max,
        {.pages = pages_,
         .fetch = options_.fetch != nullptr ? options_.fetch : FetchFunctionForMachine(),
         .pinner = options_.pinner});
  }

  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }

 private:
  const MemoryTierOptions options_;
  const std::shared_ptr<PageAllocator>
      pages_;  // shared with the tables, which may outlive the tier
};

}  // namespace

std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options) {
  return MakeMemoryTier(options, MakeSystemPageAllocator(options.huge_pages));
}

std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options,
                                          std::unique_ptr<PageAllocator> pages) {
  return std::make_unique<MemoryTier>(options, std::move(pages));
}

uint64_t MemoryTierBytesFor(uint64_t rows, size_t row_bytes, const MemoryTierOptions& options) {
  return LayoutForRows(row_bytes, rows, options).total_bytes();
}

}  // namespace hps
