#include "tier/device_query.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

template <typename... Parts>
std::string Sentence(std::string_view cache, const Parts&... parts) {
  return absl::StrCat(absl::string_view(cache.data(), cache.size()), ": ", parts...);
}

template <typename... Parts>
absl::Status Wrong(std::string_view cache, const Parts&... parts) {
  return absl::InvalidArgumentError(Sentence(cache, parts...));
}

template <typename... Parts>
absl::Status TooMuch(std::string_view cache, const Parts&... parts) {
  return absl::ResourceExhaustedError(Sentence(cache, parts...));
}

bool CanConvertInPlace(const DeviceCacheQuery& query) {
  return query.space == MemorySpace::kDevice && query.row_bytes % 2 == 0 &&
         query.row_stride_bytes >= 2 * query.row_bytes;
}

}  // namespace

absl::Status CheckDeviceQuery(const DeviceCacheQuery& query, MemorySpace space,
                              std::string_view cache) {
  if (query.row_bytes == 0 || query.row_bytes > kRowBytesMax) {
    return Wrong(cache, "a query with rows of ", query.row_bytes, " bytes, expected 1 to ",
                 kRowBytesMax);
  }
  if (query.row_stride_bytes < query.row_bytes) {
    return Wrong(cache, "a stride of ", query.row_stride_bytes, " bytes for rows of ",
                 query.row_bytes);
  }
  if (query.table != nullptr && query.table->row_bytes() != query.row_bytes) {
    return Wrong(cache, "a query with rows of ", query.row_bytes, " bytes, the table has rows of ",
                 query.table->row_bytes());
  }
  if (!query.default_row.empty() && query.default_row.size() != query.row_bytes) {
    return Wrong(cache, "a default row of ", query.default_row.size(), " bytes, expected ",
                 query.row_bytes);
  }
  if (query.space != space) return Wrong(cache, "the queries of one call mix host and device");
  if (query.convert_from != Dtype::kFloat32 && !CanConvertInPlace(query)) {
    return Wrong(cache, "rows of ", query.row_bytes, " bytes with a ", query.row_stride_bytes,
                 "-byte stride, can't be converted to float32 in place");
  }
  return absl::OkStatus();
}

absl::Status CheckDeviceQueries(std::span<const DeviceCacheQuery> queries, size_t keys_leased,
                                std::string_view cache) {
  if (queries.size() > kTablesPerCallMax) {
    return TooMuch(cache, queries.size(), " queries in a call, expected at most ",
                   kTablesPerCallMax);
  }
  size_t key_count = 0;
  for (const DeviceCacheQuery& query : queries) {
    HPS_RETURN_IF_ERROR(CheckDeviceQuery(query, queries.front().space, cache));
    if (query.key_count > keys_leased - key_count) {
      return TooMuch(cache, "more keys than the ", keys_leased, " leased");
    }
    key_count += query.key_count;
  }
  return absl::OkStatus();
}

}  // namespace hps
