// The files of a store as of one point in time, for a reader process while a writer process runs.
//
// A writer may replace files at any time. A table file that the MANIFEST names may be deleted
// before the reader opens it. The writer may also delete a WAL whose rows are in no table file that
// the reader knows. RocksDB would then show an older state, or one with missing rows, as intact.
// Therefore the reader opens all files first and then reads the MANIFEST again. If the MANIFEST is
// unchanged, the open files are the state that it describes. They stay readable after the writer
// has deleted them. Later appends are not visible.
//
// At most a quarter of the process's file descriptors hold files open. RocksDB opens further table
// files by name when it needs them. If the writer has deleted such a file, that is no damage: the
// read is an I/O error, and the store must be reopened.
//
// Thread-safe.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace hps {

class ReaderFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  // Differs from the last one if the writer has written anything.
  struct State {
    std::string identity;                   // of the database
    std::string current;                    // the MANIFEST that CURRENT names
    std::map<std::string, uint64_t> bytes;  // lengths of the MANIFEST and the WAL files, by name
    bool operator==(const State&) const = default;
  };

  // Opens the files of the store in the directory `store`. Shares the files that `former` holds
  // open; `former` may be null. Skips missing and unreadable files; RocksDB reports them. Errors:
  // UNAVAILABLE (the writer changes the files faster than they can be opened, until `deadline` and
  // for a minimum number of rounds), those of the file system.
  static absl::StatusOr<std::shared_ptr<ReaderFileSystem>> Take(
      const std::shared_ptr<rocksdb::FileSystem>& target, const std::string& store,
      const ReaderFileSystem* former, Deadline deadline);

  const State& state() const { return state_; }

  // The current state. Costs a few file-system calls. Errors: those of the file system.
  absl::StatusOr<State> StateNow() const;

  const char* Name() const override { return "ReaderFileSystem"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus FileExists(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions& options,
                                uint64_t* bytes, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* debug) override;

 private:
  struct File {
    std::shared_ptr<rocksdb::FSRandomAccessFile> file{};  // null: opened by name
    uint64_t bytes = 0;                                   // length when the file was opened
  };

  ReaderFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target, std::string store);
  absl::Status OpenFiles(const ReaderFileSystem* former);
  absl::Status Pin(const std::string& name, const ReaderFileSystem* former);
  // Returns null if the file is not part of the state.
  const File* Find(const std::string& path) const;

  const std::string store_;
  const uint64_t held_files_max_;
  std::map<std::string, File> files_{};  // by name
  std::vector<std::string> names_{};     // of all files in the directory
  State state_{};
};

}  // namespace hps
