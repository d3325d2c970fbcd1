// An iterator over a column family that never passes from one table file to the next by itself.
//
// RocksDB's own loses its way there: when the first block of the next file can't be read, it says
// that the family ends, or goes on with other levels' rows alone, and in either case that all is
// well (RocksDB 7.8.3; mended in 8.5.1). An export would be short, and a repair would leave out
// rows that are whole. A seek into a damaged file does report it, so every file is sought into.
//
// All that one iterator shows is of the moment at which it was made. For one thread.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hps {

class FileWiseIterator {
 public:
  // `options` without bounds and snapshot.
  FileWiseIterator(rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family,
                   const rocksdb::ReadOptions& options);
  FileWiseIterator(const FileWiseIterator&) = delete;
  FileWiseIterator& operator=(const FileWiseIterator&) = delete;
  ~FileWiseIterator();

  // As rocksdb::Iterator's, each with a new one: one that has met damage may find, on its next seek
  // into it, the end of the table.
  void SeekToFirst() { Seek({}); }
  void Seek(const rocksdb::Slice& target);
  void SeekForPrev(const rocksdb::Slice& target);
  void Next();
  bool Valid() const { return it_->Valid(); }
  rocksdb::Slice key() const { return it_->key(); }
  rocksdb::Slice value() const { return it_->value(); }
  rocksdb::Status status() const { return it_->status(); }

 private:
  // Opens the piece of the family that holds `key`, or what lies just before it.
  void OpenPiece(const std::string& key, bool before);
  void ReadBegins();
  uint64_t StateNumber() const;

  rocksdb::DB& database_;
  rocksdb::ColumnFamilyHandle* const family_;
  rocksdb::ReadOptions options_;
  // Where table files begin, of the state `state_number_`; ascending, and first of all "". Of the
  // keys between two of them a level has one file at most, but where a compaction split the
  // versions of one key, which it keeps for a snapshot; those of level 0 are never passed.
  std::vector<std::string> begins_;
  std::optional<uint64_t> state_number_;
  // The bounds of the piece; no end = up to the family's.
  std::string begin_;
  std::optional<std::string> end_;
  rocksdb::Slice begin_slice_;
  rocksdb::Slice end_slice_;
  std::unique_ptr<rocksdb::Iterator> it_;  // refers to the slices; never null
};

}  // namespace hps
