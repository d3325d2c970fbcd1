#include "l3_rocksdb/import/staged_pages.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_pages/page_file.h"
#include "l3_rocksdb/files/page_store.h"

namespace hps {

absl::Status CheckStagedPages(const StagedImport& import, const StagedTable& table,
                              const StagedPageFile& file) {
  const std::string path = import.directory + "/" + file.name;
  const auto damaged = [&path](const std::string& why) {
    return absl::DataLossError(absl::StrCat("'", path, "': ", why));
  };
  const auto opened = PageFile::Open({path, table.incarnation, table.spec.row_bytes(), false});
  if (absl::IsNotFound(opened.status())) return damaged("the file is missing");
  HPS_RETURN_IF_ERROR(opened.status());
  HPS_ASSIGN_OR_RETURN(const std::vector<PageKeyRange> lost, (*opened)->FindDamage());
  const PageFileDescription& found = (*opened)->description();
  if (!lost.empty() || (*opened)->is_impaired() || found.row_count != file.record.row_count ||
      found.first_key != file.record.first_key || found.last_key != file.record.last_key) {
    return damaged("the file has changed since it was written");
  }
  return absl::OkStatus();
}

absl::Status TakePageFiles(Database& database, const StagedImport& import,
                           Database::NewContents& contents) {
  for (size_t i = 0; i < import.tables.size(); ++i) {
    const StagedTable& table = import.tables[i];
    std::vector<std::string> files;
    for (const StagedPageFile& file : table.page_files)
      files.push_back(import.directory + "/" + file.name);
    if (!files.empty()) {
      HPS_RETURN_IF_ERROR(
          LinkPageFiles(database.env(), database.path(), contents.tables[i], files));
    }
    HPS_ASSIGN_OR_RETURN(auto pages, database.OpenPagesOf(contents.tables[i]));
    if (pages != nullptr && pages->table->is_impaired()) {
      return absl::UnavailableError(
          absl::StrCat("store '", database.path(), "': the page files of table '", table.spec.name,
                       "' can't be read, although they were just written; see the log"));
    }
    contents.pages.push_back(std::move(pages));
  }
  return absl::OkStatus();
}

}  // namespace hps
