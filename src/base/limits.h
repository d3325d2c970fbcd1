// Every maximum of the process, in one place, with the reason for its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hps {

// Keys that one RocksDB MultiGet asks for: its deadline is checked between pieces, and a piece of
// 256 keys ends within a millisecond or two when its blocks are cached.
inline constexpr size_t kFetchPieceKeysMax = 256;

// Keys of one task of a blocking level: one scratch buffer holds their rows (at 16 KiB a row, the
// widest there is, 64 MiB; scratch is sized by the widest row of the models that are loaded).
inline constexpr size_t kFetchTaskKeysMax = 4096;

// Scratch buffers per blocking level. When all are held, by calls or by work that outlived its
// call, the level counts as down for the calls that find none.
inline constexpr size_t kFetchScratchesMax = 64;

// Promotions that wait for a worker; one more is dropped and counted.
inline constexpr size_t kPromotionsQueuedMax = 256;

// Tables that one look-up may ask, and tables of one store.
inline constexpr size_t kTablesPerCallMax = 1024;
inline constexpr size_t kTablesPerStoreMax = 4096;

// Largest number of keys of one call: 4 Mi.
inline constexpr size_t kKeysPerCallMax = size_t{4} << 20;

// Partitions whose positions one table may have.
inline constexpr size_t kPositionsMax = 4096;

// A safetensors header may be this large; the format's own limit.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
// An .npy header: version 1.0 allows 64 KiB; more is hostile.
inline constexpr uint64_t kNpyHeaderBytesMax = 64 << 10;
// A configuration file.
inline constexpr uint64_t kConfigBytesMax = 4 << 20;

}  // namespace hps
