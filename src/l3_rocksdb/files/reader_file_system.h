// The files of a store as of one moment, for a reader beside a writer.
//
// A writer replaces files at any time: what the MANIFEST names when it is read may be gone when it
// is opened, and a log that holds what no table file holds yet may go before it is read, so that an
// older state, or one with a hole, would look whole. Therefore all files are opened first, and the
// MANIFEST is looked at once more: if nobody has changed it meanwhile, the open files are the state
// that it describes. They stay readable after the writer has removed them. Bytes that are added
// later are not seen.
//
// At most a quarter of the files that the process may open are held so; RocksDB opens the table
// files beyond by their names, when it needs them. Where the writer has removed one since, that is
// no damage: such a read is an I/O error, and the store has to be opened anew.
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
  // Differs whenever something was written.
  struct State {
    std::string identity;                   // of the database
    std::string current;                    // the MANIFEST that CURRENT names
    std::map<std::string, uint64_t> bytes;  // of the MANIFEST and of the logs, by name
    bool operator==(const State&) const = default;
  };

  // Opens the files of the store in the directory `store`. Files that `former`, which may be null,
  // holds open are shared with it. What is missing or can't be read is left for RocksDB to find.
  // Errors: UNAVAILABLE (changed faster than its files can be opened, until `deadline` and for some
  // rounds at least), those of the file system.
  static absl::StatusOr<std::shared_ptr<ReaderFileSystem>> Take(
      const std::shared_ptr<rocksdb::FileSystem>& target, const std::string& store,
      const ReaderFileSystem* former, Deadline deadline);

  const State& state() const { return state_; }

  // The state now: a few calls of the file system. Errors: those of the file system.
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
    std::shared_ptr<rocksdb::FSRandomAccessFile> file{};  // null: only known by its name
    uint64_t bytes = 0;                                   // that belong to the moment
  };

  ReaderFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target, std::string store);
  absl::Status OpenFiles(const ReaderFileSystem* former);
  absl::Status Pin(const std::string& name, const ReaderFileSystem* former);
  // Null: not a file of the moment.
  const File* Find(const std::string& path) const;

  const std::string store_;
  const uint64_t held_files_max_;
  std::map<std::string, File> files_{};  // by name
  std::vector<std::string> names_{};     // of everything in the directory
  State state_{};
};

}  // namespace hps
