// A disk that misbehaves as planned, under a RocksDB: single calls fail, space runs out and comes
// back, what was read is flipped, and a power cut takes what was not synced.
//
//   auto disk = std::make_shared<FaultFileSystem>();
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(disk);
//   disk->Fail({.nth = 17, .sticky = true});
//
// Without a plan it is the file system below it. Thread-safe.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace hps {

// Kinds of calls, as bits.
enum FileCall : uint32_t {
  kFileOpen = 1,     // a file or directory that exists, for reading or for appending; locking
  kFileRead = 2,     // bytes
  kFileCreate = 4,   // a file or directory
  kFileAppend = 8,   // bytes; also flush, close and truncate of an open file
  kFileSync = 16,    // of a file or a directory
  kFileChange = 32,  // rename, link, delete
  kFileList = 64,    // names, sizes, times, existence
};
inline constexpr uint32_t kFileCallsAll = 127;

// Of the calling thread.
std::string ThreadName();

struct FileFaultPlan {
  uint64_t nth = 0;                // the first matching call that fails, counted from Fail, from 0
  bool sticky = false;             // all later ones fail too
  uint32_t calls = kFileCallsAll;  // FileCall bits
  std::string path_contains{};     // empty = every path
  std::string thread_contains{};   // empty = every thread; RocksDB compacts on "rocksdb:low"
  rocksdb::IOStatus status = rocksdb::IOStatus::IOError("a planned fault");
};

struct ReadFlipPlan {
  uint64_t seed = 1;
  uint64_t every = 1;           // one bit is flipped in one of so many reads
  std::string path_contains{};  // empty = every path
};

class FaultFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  // Null = the machine's.
  explicit FaultFileSystem(std::shared_ptr<rocksdb::FileSystem> target = nullptr);

  // Replaces the plan; counting begins anew.
  void Fail(const FileFaultPlan& plan);
  void FlipReads(const ReadFlipPlan& plan);
  // The disk has so many bytes left: appends use them up, deletion and truncation give them back.
  // nullopt = as many as the real disk. Asked for its free space, the disk tells the truth, or
  // (`tells` false) what the real disk has: space that others take away between question and use.
  void SetFreeBytes(std::optional<uint64_t> bytes, bool tells = true);
  // Ends failing, flipping and want of space.
  void Heal();

  // From now on nothing changes on the disk; every call that would fails.
  void CutPower();
  // What the disk looks like after the power cut: files are cut to what was synced, files whose
  // directory was not synced since are gone. Renames and deletions count as durable at once, as on
  // a journaling file system. Ends the cut. REQUIRES: all files are closed.
  absl::Status DropUnsynced();

  uint64_t matching_calls() const;  // since Fail
  uint64_t failures() const;        // of calls, since the file system was made
  uint64_t out_of_space_count() const;
  uint64_t flips() const;

  const char* Name() const override { return "FaultFileSystem"; }

  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus FileExists(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(const std::string& path, size_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDir(const std::string& path, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteDir(const std::string& path, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions& options,
                                uint64_t* size, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LockFile(const std::string& path, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options,
                                 uint64_t* bytes, rocksdb::IODebugContext* debug) override;

  // For the files that it opens.
  rocksdb::IOStatus Check(FileCall call, const std::string& path);
  // How many of `bytes` fit: they are taken from the free space. All, unless space is bounded.
  uint64_t TakeSpace(uint64_t bytes);
  void NoteSize(const std::string& path, uint64_t size);
  void NoteSynced(const std::string& path, uint64_t size);
  void NoteDirectorySynced(const std::string& directory);
  // Flips a bit of what was read, when the plan says so.
  void MaybeFlip(const std::string& path, rocksdb::Slice* result, char* scratch);

 private:
  struct WrittenFile {
    uint64_t size = 0;
    uint64_t synced = 0;
    bool directory_synced = false;
  };

  rocksdb::IOStatus Create(
      const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file,
      const std::function<rocksdb::IOStatus(std::unique_ptr<rocksdb::FSWritableFile>*)>& open);
  void Forget(const std::string& path) HPS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  FileFaultPlan plan_ HPS_GUARDED_BY(mutex_);
  bool failing_ HPS_GUARDED_BY(mutex_) = false;
  bool power_is_cut_ HPS_GUARDED_BY(mutex_) = false;
  std::optional<ReadFlipPlan> flip_plan_ HPS_GUARDED_BY(mutex_);
  std::mt19937_64 random_ HPS_GUARDED_BY(mutex_);
  bool tells_free_bytes_ HPS_GUARDED_BY(mutex_) = true;
  std::optional<uint64_t> free_bytes_ HPS_GUARDED_BY(mutex_);
  uint64_t matching_calls_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t failures_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t out_of_space_count_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t flips_ HPS_GUARDED_BY(mutex_) = 0;
  std::map<std::string, WrittenFile> written_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
