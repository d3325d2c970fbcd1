#include "l3_rocksdb/file_wise_iterator.h"

#include <rocksdb/iterator.h>
#include <rocksdb/metadata.h>

#include <algorithm>

namespace hps {
namespace {

// A flush or a compaction would have to end in each of so many moments.
constexpr int kOpenTriesMax = 1000;

}  // namespace

FileWiseIterator::FileWiseIterator(rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family,
                                   const rocksdb::ReadOptions& options)
    : database_(database), family_(family), options_(options), it_(rocksdb::NewEmptyIterator()) {
  options_.snapshot = database.GetSnapshot();
}

FileWiseIterator::~FileWiseIterator() {
  it_.reset();
  database_.ReleaseSnapshot(options_.snapshot);
}

uint64_t FileWiseIterator::StateNumber() const {
  uint64_t number = 0;
  database_.GetIntProperty(family_, rocksdb::DB::Properties::kCurrentSuperVersionNumber, &number);
  return number;
}

void FileWiseIterator::ReadBegins() {
  rocksdb::ColumnFamilyMetaData files;
  database_.GetColumnFamilyMetaData(family_, &files);
  begins_ = {""};
  for (const rocksdb::LevelMetaData& level : files.levels) {
    if (level.level == 0) continue;
    for (const rocksdb::SstFileMetaData& file : level.files) begins_.push_back(file.smallestkey);
  }
  std::sort(begins_.begin(), begins_.end());
  begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
}

void FileWiseIterator::OpenPiece(const std::string& key, bool before) {
  for (int tries = 0; tries < kOpenTriesMax; ++tries) {
    const uint64_t number = StateNumber();
    if (number != state_number_) {
      ReadBegins();
      state_number_ = number;
    }
    auto end = before ? std::lower_bound(begins_.begin(), begins_.end(), key)
                      : std::upper_bound(begins_.begin(), begins_.end(), key);
    end = std::max(end, begins_.begin() + 1);
    it_.reset();
    begin_ = *(end - 1);
    end_ = end == begins_.end() ? std::nullopt : std::optional(*end);
    begin_slice_ = begin_;
    options_.iterate_lower_bound = begin_.empty() ? nullptr : &begin_slice_;
    if (end_.has_value()) end_slice_ = *end_;
    options_.iterate_upper_bound = end_.has_value() ? &end_slice_ : nullptr;
    it_.reset(database_.NewIterator(options_, family_));
    // Else it may read other files than those that the bounds are of.
    if (StateNumber() == number) return;
  }
  it_.reset(rocksdb::NewErrorIterator(rocksdb::Status::Busy("table files change all the time")));
}

void FileWiseIterator::Seek(const rocksdb::Slice& target) {
  std::string from = target.ToString();
  for (;;) {
    OpenPiece(from, false);
    it_->Seek(from);
    if (it_->Valid() || !it_->status().ok() || !end_.has_value()) return;
    from = *end_;
  }
}

void FileWiseIterator::SeekForPrev(const rocksdb::Slice& target) {
  OpenPiece(target.ToString(), false);
  it_->SeekForPrev(target);
  while (!it_->Valid() && it_->status().ok() && !begin_.empty()) {
    OpenPiece(std::string(begin_), true);
    // Not to its last: where table files have changed meanwhile, the piece may end behind the
    // target.
    it_->SeekForPrev(target);
  }
}

void FileWiseIterator::Next() {
  it_->Next();
  if (!it_->Valid() && it_->status().ok() && end_.has_value()) Seek(std::string(*end_));
}

}  // namespace hps
