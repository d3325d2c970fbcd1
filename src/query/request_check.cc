#include "query/request_check.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"

namespace hps {
namespace {

// What is wrong with query number `query` of a call; `what` goes on from the table's name.
absl::Status Invalid(const SessionTable& table, size_t query, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("lookup: query ", query, " (table '", table.spec.name, "'): ", what));
}

// The bytes that `key_count` rows take; nullopt when that is beyond 64 bits.
std::optional<uint64_t> BytesNeeded(size_t key_count, size_t stride_bytes, size_t row_bytes) {
  const std::optional<uint64_t> before_last = CheckedMultiply(key_count - 1, stride_bytes);
  return before_last.has_value() ? CheckedAdd(*before_last, row_bytes) : std::nullopt;
}

template <MemorySpace kSpace>
absl::Status CheckQuery(const TableQuery<kSpace>& query, const SessionTable& table, size_t number) {
  const size_t key_count = query.keys.size();
  if (!query.status.empty() && query.status.size() != key_count) {
    return Invalid(
        table, number,
        absl::StrCat("room for ", query.status.size(), " statuses, but ", key_count, " keys"));
  }
  const size_t row_bytes = table.output_row_bytes;
  const size_t stride_bytes = query.row_stride_bytes == 0 ? row_bytes : query.row_stride_bytes;
  if (stride_bytes < row_bytes) {
    return Invalid(table, number,
                   absl::StrCat("rows every ", stride_bytes, " bytes, but a row has ", row_bytes));
  }
  if (key_count == 0) return absl::OkStatus();
  const std::optional<uint64_t> needed = BytesNeeded(key_count, stride_bytes, row_bytes);
  if (!needed.has_value() || *needed > query.rows.size()) {
    return Invalid(
        table, number,
        absl::StrCat("the rows have room for ", query.rows.size(), " bytes, but ", key_count,
                     " rows of ", row_bytes, " bytes every ", stride_bytes, " bytes do not fit"));
  }
  if (query.keys.data() == nullptr || query.rows.data() == nullptr ||
      (!query.status.empty() && query.status.data() == nullptr)) {
    return Invalid(table, number, "a buffer is null");
  }
  return absl::OkStatus();
}

absl::Status CheckServed(const SessionTable& table, const ModelSnapshot& snapshot) {
  const LiveTable* served = snapshot.table(table.slot);
  if (snapshot.unloaded()) {
    return absl::UnavailableError(
        absl::StrCat("lookup: table '", table.spec.name, "' is of a model that was unloaded"));
  }
  if (served == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("lookup: table '", table.spec.name, "' has been dropped"));
  }
  const TableSpec& now = served->spec();
  if (now.dim != table.spec.dim || now.dtype != table.spec.dtype) {
    return absl::FailedPreconditionError(absl::StrCat(
        "lookup: table '", table.spec.name, "' has been imported again with dim ", now.dim, ", ",
        std::string(DtypeName(now.dtype)), "; this session was made when it had dim ",
        table.spec.dim, ", ", std::string(DtypeName(table.spec.dtype))));
  }
  return absl::OkStatus();
}

}  // namespace

template <MemorySpace kSpace>
absl::Status CheckRequest(const LookupRequest<kSpace>& request,
                          std::span<const SessionTable> tables, const ModelSnapshot& snapshot) {
  if (request.queries.size() > kTablesPerCallMax) {
    return absl::InvalidArgumentError(absl::StrCat("lookup: ", request.queries.size(),
                                                   " queries in one call; the maximum is ",
                                                   kTablesPerCallMax));
  }
  const double threshold = request.hit_rate_threshold.value_or(1.0);
  if (!(threshold >= 0.0 && threshold <= 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lookup: hit-rate threshold ", PrintDouble(threshold), " is not in [0, 1]"));
  }
  for (size_t i = 0; i < request.queries.size(); ++i) {
    const TableQuery<kSpace>& query = request.queries[i];
    if (query.table.value >= tables.size()) {
      return absl::InvalidArgumentError(absl::StrCat("lookup: query ", i, " names table ",
                                                     query.table.value, ", but the session has ",
                                                     tables.size(), " tables"));
    }
    const SessionTable& table = tables[query.table.value];
    HPS_RETURN_IF_ERROR(CheckQuery(query, table, i));
    HPS_RETURN_IF_ERROR(CheckServed(table, snapshot));
  }
  return absl::OkStatus();
}

template absl::Status CheckRequest(const HostLookupRequest&, std::span<const SessionTable>,
                                   const ModelSnapshot&);
template absl::Status CheckRequest(const DeviceLookupRequest&, std::span<const SessionTable>,
                                   const ModelSnapshot&);

}  // namespace hps
