// A store that another program wrote, read as the source of an import. Nothing of it is changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "hps/types.h"

namespace hps {

// One table, as it was when it was opened; the rows are float32. Thread-safe.
class ForeignTable {
 public:
  virtual ~ForeignTable() = default;

  virtual uint64_t row_count() const = 0;
  virtual size_t key_bytes() const = 0;  // 4 or 8
  virtual size_t row_bytes() const = 0;  // 0 if there are no rows
  // A key may occur again, with a row that replaces the one before.
  virtual bool keys_repeat() const = 0;

  // The keys and rows from number `first_row` on, in the store's own order. Either span may be
  // empty; otherwise both have the same number of rows.
  // REQUIRES: first_row + the number of rows <= row_count(). Errors: DATA_LOSS.
  virtual absl::Status Read(uint64_t first_row, std::span<Key> keys,
                            std::span<std::byte> rows) const = 0;
};

class ForeignStore {
 public:
  virtual ~ForeignStore() = default;

  // "<model>/<table>" of all tables, sorted.
  virtual const std::vector<std::string>& tables() const = 0;

  // Reads the whole table once, to count and check its rows.
  // Errors: NOT_FOUND, which names the tables that there are; INVALID_ARGUMENT (keys or rows of
  // different sizes), DATA_LOSS.
  virtual absl::StatusOr<std::unique_ptr<ForeignTable>> OpenTable(const std::string& name) = 0;
};

// Opens request.from, whose format is request.format: kHugectrRocksdb or kHugectrRedis. Errors:
// NOT_FOUND, INVALID_ARGUMENT (no such store), those of the disk and the network.
using ForeignStoreOpener =
    std::function<absl::StatusOr<std::unique_ptr<ForeignStore>>(const ImportRequest& request)>;

// Whether it begins with redis:// or rediss://.
bool IsRedisUrl(std::string_view text);
// A URL is shown in messages, logs and lists of processes. Errors: INVALID_ARGUMENT: it has a user,
// a password or parameters, which the message does not repeat.
absl::Status CheckRedisUrlHasNoPassword(std::string_view url);

// What HugeCTR HPS's databases have in common: a table has the tag "hps_et.<model>.<table>", a key
// is little-endian, in 4 or 8 bytes, and a row is float32.

// "<model>/<table>" of a tag; nothing if it is none.
std::optional<std::string> TableOfHugectrTag(std::string_view tag);
// Errors: INVALID_ARGUMENT. `what` begins the message.
absl::Status CheckHugectrSizes(const std::string& what, size_t key_bytes, size_t row_bytes);
// 4 bytes are unsigned. REQUIRES: CheckHugectrSizes takes the size.
Key HugectrKey(std::string_view bytes);

}  // namespace hps
