#include "l3_rocksdb/files/reader_file_system.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {

using rocksdb::FileOptions;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSSequentialFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// Minimum number of attempts, whatever the deadline.
constexpr int kRoundsMin = 8;

// The first `bytes` bytes of a file that is held open, read in sequence.
class HeldSequentialFile final : public FSSequentialFile {
 public:
  HeldSequentialFile(std::shared_ptr<FSRandomAccessFile> file, uint64_t bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    const size_t wanted = std::min<uint64_t>(n, bytes_ - offset_);
    *result = Slice();
    if (wanted == 0) return IOStatus::OK();  // a real file returns an error here
    const IOStatus status = file_->Read(offset_, wanted, options, result, scratch, debug);
    if (status.ok()) offset_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t n) override {
    offset_ += std::min(n, bytes_ - offset_);
    return IOStatus::OK();
  }

 private:
  const std::shared_ptr<FSRandomAccessFile> file_;
  const uint64_t bytes_;
  uint64_t offset_ = 0;
};

class HeldRandomAccessFile final : public rocksdb::FSRandomAccessFileWrapper {
 public:
  explicit HeldRandomAccessFile(std::shared_ptr<FSRandomAccessFile> file)
      : FSRandomAccessFileWrapper(file.get()), file_(std::move(file)) {}

 private:
  const std::shared_ptr<FSRandomAccessFile> file_;
};

bool IsLog(const std::string& name) { return name.ends_with(".log"); }
bool IsTableFile(const std::string& name) { return name.ends_with(".sst"); }
bool IsOptions(const std::string& name) { return name.starts_with("OPTIONS-"); }
bool IsMark(const std::string& name) {
  return name.starts_with("hps.manifest") && !name.ends_with(".tmp");
}

// By file number, newest first.
bool IsNewer(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() > b.size() : a > b;
}

uint64_t HeldFilesMax() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  if (limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<uint64_t>::max();
  return limit.rlim_cur / 4;
}

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Reads a file of one line. Returns an empty line if the file does not exist.
absl::StatusOr<std::string> ReadLine(rocksdb::FileSystem& files, const std::string& path) {
  std::string line;
  const IOStatus read = rocksdb::ReadFileToString(&files, path, &line);
  if (IsGone(read)) return std::string();
  HPS_RETURN_IF_ERROR(FromRocksStatus(read, absl::StrCat("reading '", path, "'")));
  while (line.ends_with('\n')) line.pop_back();
  return line;
}

absl::StatusOr<std::vector<std::string>> List(rocksdb::FileSystem& files,
                                              const std::string& store) {
  std::vector<std::string> names;
  const IOStatus listed = files.GetChildren(store, IOOptions(), &names, nullptr);
  if (IsGone(listed)) return names;
  HPS_RETURN_IF_ERROR(FromRocksStatus(listed, absl::StrCat("listing '", store, "'")));
  std::sort(names.begin(), names.end(), IsNewer);
  return names;
}

// Does nothing if the file does not exist.
absl::Status NoteBytes(rocksdb::FileSystem& files, const std::string& store,
                       const std::string& name, ReaderFileSystem::State& state) {
  uint64_t bytes = 0;
  const std::string path = store + "/" + name;
  const IOStatus sized = files.GetFileSize(path, IOOptions(), &bytes, nullptr);
  if (IsGone(sized)) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromRocksStatus(sized, absl::StrCat("reading '", path, "'")));
  state.bytes[name] = bytes;
  return absl::OkStatus();
}

// A damaged CURRENT may have any content. The caller skips it, and RocksDB reports it.
bool NamesManifest(const std::string& current) {
  constexpr std::string_view kPrefix = "MANIFEST-";
  return current.starts_with(kPrefix) &&
         current.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

absl::StatusOr<ReaderFileSystem::State> ReadState(rocksdb::FileSystem& files,
                                                  const std::string& store) {
  ReaderFileSystem::State state;
  HPS_ASSIGN_OR_RETURN(state.identity, ReadLine(files, store + "/IDENTITY"));
  HPS_ASSIGN_OR_RETURN(state.current, ReadLine(files, store + "/CURRENT"));
  if (NamesManifest(state.current))
    HPS_RETURN_IF_ERROR(NoteBytes(files, store, state.current, state));
  HPS_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(files, store));
  // A WAL file is complete once a newer one exists, so the newest is read first.
  for (const std::string& name : names) {
    if (IsLog(name)) HPS_RETURN_IF_ERROR(NoteBytes(files, store, name, state));
  }
  return state;
}

}  // namespace

ReaderFileSystem::ReaderFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target,
                                   std::string store)
    : FileSystemWrapper(target),
      store_(WithoutTrailingSlash(std::move(store))),
      held_files_max_(HeldFilesMax()) {}

absl::StatusOr<std::shared_ptr<ReaderFileSystem>> ReaderFileSystem::Take(
    const std::shared_ptr<rocksdb::FileSystem>& target, const std::string& store,
    const ReaderFileSystem* former, Deadline deadline) {
  // Holds the files of the last round open for the next round.
  std::shared_ptr<ReaderFileSystem> last;
  for (int round = 1;; ++round) {
    std::shared_ptr<ReaderFileSystem> taken(new ReaderFileSystem(target, store));
    HPS_RETURN_IF_ERROR(taken->OpenFiles(last != nullptr ? last.get() : former));
    HPS_ASSIGN_OR_RETURN(const State now, taken->StateNow());
    const std::string& manifest = taken->state_.current;
    const auto then_bytes = taken->state_.bytes.find(manifest);
    const auto now_bytes = now.bytes.find(manifest);
    const bool both = then_bytes != taken->state_.bytes.end() && now_bytes != now.bytes.end();
    const bool neither = then_bytes == taken->state_.bytes.end() && now_bytes == now.bytes.end();
    const bool same_bytes = both ? then_bytes->second == now_bytes->second : neither;
    if (now.current == manifest && same_bytes) return taken;
    // On a busy machine a single round may take longer than the deadline.
    if (round >= kRoundsMin && RealClock().Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "store '", store, "': its writer changed it during every attempt to open it; try again"));
    }
    last = std::move(taken);
  }
}

absl::StatusOr<ReaderFileSystem::State> ReaderFileSystem::StateNow() const {
  return ReadState(*target(), store_);
}

// Opens the marks first: they may be older than the MANIFEST, but not newer. Opens the table files
// last: all files that the MANIFEST names exist by then.
absl::Status ReaderFileSystem::OpenFiles(const ReaderFileSystem* former) {
  HPS_ASSIGN_OR_RETURN(names_, List(*target(), store_));
  for (const std::string& name : names_) {
    if (IsMark(name)) HPS_RETURN_IF_ERROR(Pin(name, nullptr));
  }
  HPS_ASSIGN_OR_RETURN(state_, ReadState(*target(), store_));
  HPS_RETURN_IF_ERROR(Pin("CURRENT", nullptr));
  // A file number is unique within a database, but the path may hold another database now.
  if (former != nullptr && former->state_.identity != state_.identity) former = nullptr;
  HPS_ASSIGN_OR_RETURN(names_, List(*target(), store_));
  for (const auto& [name, bytes] : state_.bytes) {
    HPS_RETURN_IF_ERROR(Pin(name, former));
    if (const auto file = files_.find(name); file != files_.end()) file->second.bytes = bytes;
  }
  for (const std::string& name : names_) {
    if (IsTableFile(name) || IsOptions(name)) HPS_RETURN_IF_ERROR(Pin(name, former));
  }
  // Removes files that were deleted meanwhile, and WAL files created after the state was read.
  std::erase_if(names_, [this](const std::string& name) {
    const bool may_go = IsLog(name) || IsTableFile(name) || IsOptions(name);
    return may_go && !files_.contains(name);
  });
  return absl::OkStatus();
}

absl::Status ReaderFileSystem::Pin(const std::string& name, const ReaderFileSystem* former) {
  const std::string path = store_ + "/" + name;
  if (former != nullptr) {
    const auto known = former->files_.find(name);
    if (known != former->files_.end() && known->second.file != nullptr) {
      File& shared = files_[name] = known->second;
      // The writer may have appended to the file. A deleted file keeps its size: either the state
      // does not need it, or the MANIFEST has changed.
      const IOStatus sized = target()->GetFileSize(path, IOOptions(), &shared.bytes, nullptr);
      if (sized.ok() || IsGone(sized)) return absl::OkStatus();
      return FromRocksStatus(sized, absl::StrCat("reading '", path, "'"));
    }
  }
  const bool is_table_file = IsTableFile(name);
  if (is_table_file && files_.size() >= held_files_max_) {
    files_[name] = {};
    return absl::OkStatus();
  }
  File pinned;
  std::unique_ptr<FSRandomAccessFile> file;
  IOStatus status = target()->NewRandomAccessFile(path, FileOptions(), &file, nullptr);
  if (status.ok()) status = target()->GetFileSize(path, IOOptions(), &pinned.bytes, nullptr);
  if (status.ok()) {
    pinned.file = std::move(file);
    files_[name] = std::move(pinned);
    return absl::OkStatus();
  }
  if (IsGone(status)) return absl::OkStatus();
  if (!is_table_file) return FromRocksStatus(status, absl::StrCat("opening '", path, "'"));
  files_[name] = {};  // RocksDB opens it by name or reports its error
  return absl::OkStatus();
}

const ReaderFileSystem::File* ReaderFileSystem::Find(const std::string& path) const {
  if (!path.starts_with(store_)) return nullptr;
  const size_t name = path.find_first_not_of('/', store_.size());
  if (name == std::string::npos || name == store_.size()) return nullptr;
  const auto found = files_.find(path.substr(name));
  return found == files_.end() ? nullptr : &found->second;
}

IOStatus ReaderFileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                             std::unique_ptr<FSSequentialFile>* file,
                                             IODebugContext* debug) {
  const File* const held = Find(path);
  if (held == nullptr || held->file == nullptr)
    return target()->NewSequentialFile(path, options, file, debug);
  *file = std::make_unique<HeldSequentialFile>(held->file, held->bytes);
  return IOStatus::OK();
}

IOStatus ReaderFileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                               std::unique_ptr<FSRandomAccessFile>* file,
                                               IODebugContext* debug) {
  const File* const held = Find(path);
  // A direct read needs a file that was opened for direct reads.
  if (held != nullptr && held->file != nullptr && !options.use_direct_reads) {
    *file = std::make_unique<HeldRandomAccessFile>(held->file);
    return IOStatus::OK();
  }
  const IOStatus opened = target()->NewRandomAccessFile(path, options, file, debug);
  if (held == nullptr || !IsGone(opened)) return opened;
  return IOStatus::IOError(path,
                           "the store's writer has deleted the file since the store was opened");
}

IOStatus ReaderFileSystem::FileExists(const std::string& path, const IOOptions& options,
                                      IODebugContext* debug) {
  return Find(path) != nullptr ? IOStatus::OK() : target()->FileExists(path, options, debug);
}

IOStatus ReaderFileSystem::GetFileSize(const std::string& path, const IOOptions& options,
                                       uint64_t* bytes, IODebugContext* debug) {
  const File* const held = Find(path);
  if (held == nullptr || held->file == nullptr)
    return target()->GetFileSize(path, options, bytes, debug);
  *bytes = held->bytes;
  return IOStatus::OK();
}

IOStatus ReaderFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                       std::vector<std::string>* names, IODebugContext* debug) {
  if (WithoutTrailingSlash(path) != store_)
    return target()->GetChildren(path, options, names, debug);
  *names = names_;
  return IOStatus::OK();
}

}  // namespace hps
