#include "l3_rocksdb/rocks_options.h"

#include <rocksdb/cache.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/resource.h>

#include <algorithm>

#include "l3_rocksdb/files/info_log.h"

namespace hps {
namespace {

// Ten bits per key: one absent key in a hundred costs a block read.
constexpr double kFilterBitsPerKey = 10;
constexpr uint64_t kWriteBufferBytesMax = uint64_t{64} << 20;
// Index and filter of a table file are then small enough to be cached as one block each.
constexpr uint64_t kTableFileBytes = uint64_t{64} << 20;
// A store may have thousands of tables, each with a memtable once it is updated.
constexpr size_t kArenaBlockBytes = 128 << 10;
// RocksDB reads fastest if every file stays open. This is possible if the process may open about as
// many files as a terabyte has.
constexpr rlim_t kFilesForAllOpen = 32768;

int OpenFilesMax() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kFilesForAllOpen) return -1;
  return static_cast<int>(std::max<rlim_t>(64, limit.rlim_cur / 2));
}

rocksdb::BlockBasedTableOptions TableOptions(std::shared_ptr<rocksdb::Cache> cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = std::move(cache);
  table.block_size = 4 << 10;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  // Indexes and filters are charged to the one cache; otherwise memory would grow with the store.
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  return table;
}

}  // namespace

RocksOptions::RocksOptions(const RocksStoreOptions& options) {
  rocksdb::LRUCacheOptions cache_options;
  // Its cache of rows (row_cache) is no way to make it quicker: with one, 7.8.3 did not find a
  // record that is there.
  cache_options.capacity = BlockCacheBytes(options.config.cache_bytes);
  cache_options.high_pri_pool_ratio = 0.2;  // indexes and filters outlive a scan

  database_.env = EnvOf(options);
  database_.info_log = std::make_shared<InfoLog>();
  database_.info_log_level = rocksdb::WARN_LEVEL;
  database_.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(options.config.write_buffer_bytes);
  database_.max_open_files = OpenFilesMax();
  database_.max_background_jobs = 2;
  // Uses only the opening thread: if RocksDB cannot start a thread, it ends the process.
  database_.max_file_opening_threads = 1;
  database_.max_bgerror_resume_count = 0;  // the next write recovers: see background_errors.h
  database_.bytes_per_sync = 1 << 20;
  database_.use_direct_reads = options.direct_reads;
  database_.paranoid_checks = true;
  // A WAL file that the MANIFEST names must exist; otherwise acknowledged writes are lost.
  database_.track_and_verify_wals_in_manifest = true;
  database_.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // `hps verify` compares every byte of every table file with the checksum in the MANIFEST.
  database_.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  database_.stats_dump_period_sec = 0;
  database_.stats_persist_period_sec = 0;

  rows_.compression = rocksdb::kNoCompression;  // trained rows do not compress
  rows_.write_buffer_size = std::min(kWriteBufferBytesMax, options.config.write_buffer_bytes);
  rows_.arena_block_size = kArenaBlockBytes;
  rows_.target_file_size_base = kTableFileBytes;
  rows_.level_compaction_dynamic_level_bytes = true;
  // For a key that is not in the memtable, a lookup reads one cache line of its filter.
  rows_.memtable_whole_key_filtering = true;
  rows_.memtable_prefix_bloom_size_ratio = 0.02;
  catalog_ = rows_;

  rocksdb::BlockBasedTableOptions table = TableOptions(rocksdb::NewLRUCache(cache_options));
  catalog_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  // One entry per row, so that a lookup parses no rows before its own, and few rows share a bucket.
  table.block_restart_interval = 1;
  table.data_block_hash_table_util_ratio = 0.25;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBitsPerKey));
  rows_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
}

}  // namespace hps
