// The page files of a store: STORE/pages/<incarnation>-<number>, named by the catalog.
//
// A file of an import is made in a staging directory, and linked here before the switch that names
// it; one of a merge is made here. It is removed with the column family of the changes since. Files
// that the catalog does not name are left over from an import or a merge that did not switch.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "l3_pages/page_table.h"
#include "l3_rocksdb/catalog_records.h"

namespace hps {

// The open page files of one incarnation, and what reads them.
struct FamilyPages {
  std::shared_ptr<PageReader> reader;
  std::unique_ptr<PageTable> table;  // destroyed first
};

std::string PagesDirectory(const std::string& store);
std::string PageFilePath(const std::string& store, Incarnation incarnation, uint64_t number);

// Page files by incarnation and number.
using PageFileSet = std::set<std::pair<Incarnation, uint64_t>>;
void AddPageFiles(const TableRecord& table, PageFileSet& files);

// Opens the page files of a table. They are read past the system's page cache if the reader caches
// their pages, or if `direct`. Errors: those of PageTable::Open.
absl::StatusOr<std::shared_ptr<const FamilyPages>> OpenPages(
    const std::string& store, const TableRecord& table, bool direct,
    const std::shared_ptr<PageReader>& reader);

// True if a page file of the table does not exist.
bool AnyPageFileIsMissing(const std::string& store, const TableRecord& table);

// Links the files of a table (copies, where the file system has no links) into the store, durably.
// Errors: RESOURCE_EXHAUSTED, UNAVAILABLE.
absl::Status LinkPageFiles(rocksdb::Env* env, const std::string& store, const TableRecord& table,
                           const std::vector<std::string>& files);

// Removes the page files of some incarnations, except `kept`; a store without them is no error.
// Lists the directory once. Errors: UNAVAILABLE.
absl::Status RemovePageFiles(rocksdb::Env* env, const std::string& store,
                             const std::set<Incarnation>& incarnations, const PageFileSet& kept);

// Removes all page files except `kept`.
absl::Status RemoveOtherPageFiles(rocksdb::Env* env, const std::string& store,
                                  const PageFileSet& kept);

}  // namespace hps
