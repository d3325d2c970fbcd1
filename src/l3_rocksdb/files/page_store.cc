#include "l3_rocksdb/files/page_store.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

std::string Digits(Incarnation incarnation) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%013" PRIx64, incarnation);
  return digits;
}

// The incarnation that a file of the directory belongs to.
std::optional<Incarnation> IncarnationOfFile(const std::string& name) {
  Incarnation incarnation = 0;
  size_t part = 0;
  if (std::sscanf(name.c_str(), "%" SCNx64 "-%zu", &incarnation, &part) != 2) return std::nullopt;
  if (absl::StrCat(Digits(incarnation), "-", part) != name) return std::nullopt;
  return incarnation;
}

absl::Status RemoveIf(rocksdb::Env* env, const std::string& store,
                      const std::function<bool(Incarnation)>& is_removed) {
  const std::string directory = PagesDirectory(store);
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(directory, &names);
  if (listed.IsNotFound() || listed.IsPathNotFound()) return absl::OkStatus();
  absl::Status removed = FromRocksStatus(listed, absl::StrCat("listing '", directory, "'"));
  for (const std::string& name : names) {
    const std::optional<Incarnation> incarnation = IncarnationOfFile(name);
    if (incarnation.has_value() && is_removed(*incarnation))
      removed.Update(RemoveFile(env, directory + "/" + name));
  }
  return removed;
}

}  // namespace

std::string PagesDirectory(const std::string& store) { return store + "/pages"; }

std::string PageFilePath(const std::string& store, Incarnation incarnation, size_t part) {
  return absl::StrCat(PagesDirectory(store), "/", Digits(incarnation), "-", part);
}

absl::StatusOr<std::shared_ptr<const FamilyPages>> OpenPages(
    const std::string& store, const TableRecord& table, bool direct,
    const std::shared_ptr<PageReader>& reader) {
  if (!table.in_page_files) return std::shared_ptr<const FamilyPages>();
  PageTable::Options options;
  options.incarnation = table.incarnation;
  options.row_bytes = table.spec.row_bytes();
  // The cache holds no larger pages.
  const bool is_cached =
      reader->cache() != nullptr && PageShape::Of(options.row_bytes).page_bytes == kPageBlockBytes;
  options.direct = direct || is_cached;
  for (size_t i = 0; i < table.page_files.size(); ++i) {
    const PageFileRecord& file = table.page_files[i];
    options.parts.push_back(
        {PageFilePath(store, table.incarnation, i), file.row_count, file.first_key, file.last_key});
  }
  auto pages = std::make_shared<FamilyPages>();
  pages->reader = reader;
  HPS_ASSIGN_OR_RETURN(pages->table, PageTable::Open(options, *reader));
  return std::shared_ptr<const FamilyPages>(std::move(pages));
}

bool AnyPageFileIsMissing(const std::string& store, const TableRecord& table) {
  std::error_code error;
  for (size_t i = 0; i < table.page_files.size(); ++i) {
    if (!std::filesystem::exists(PageFilePath(store, table.incarnation, i), error) && !error)
      return true;
  }
  return false;
}

absl::Status LinkPageFiles(rocksdb::Env* env, const std::string& store, Incarnation incarnation,
                           const std::vector<std::string>& files) {
  HPS_RETURN_IF_ERROR(MakeDirectories(env, PagesDirectory(store)));
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string to = PageFilePath(store, incarnation, i);
    HPS_RETURN_IF_ERROR(RemoveFile(env, to));  // of a try that failed
    HPS_FAULT_POINT("l3.pages.before_link");
    HPS_RETURN_IF_ERROR(LinkOrCopyFile(env, files[i], to));
  }
  HPS_FAULT_POINT("l3.pages.before_sync");
  return SyncDirectory(env, PagesDirectory(store));
}

absl::Status RemovePageFiles(rocksdb::Env* env, const std::string& store,
                             const std::set<Incarnation>& incarnations) {
  HPS_FAULT_POINT("l3.pages.before_removal");
  return RemoveIf(env, store, [&](Incarnation found) { return incarnations.contains(found); });
}

absl::Status RemoveOtherPageFiles(rocksdb::Env* env, const std::string& store,
                                  const std::set<Incarnation>& known) {
  return RemoveIf(env, store, [&](Incarnation found) { return !known.contains(found); });
}

}  // namespace hps
