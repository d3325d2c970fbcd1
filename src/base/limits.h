// All limits of the process, with the reason for each value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hps {

// Keys of one RocksDB MultiGet. The deadline is checked between pieces; a piece of 256 keys ends
// within a millisecond or two if its blocks are cached.
inline constexpr size_t kFetchPieceKeysMax = 256;

// Readers of one epoch domain. The server has a session for each lookup slot, model and version in
// use: 128 slots x 32 models x 2 versions are 8,192. A used place takes 64 bytes.
inline constexpr size_t kEpochReadersMax = size_t{1} << 20;

// Keys and row bytes of one task of a blocking level: one scratch buffer holds both. 2 MiB are
// 4,096 rows of 512 bytes. A task takes fewer of wider rows (128 of the widest, 16 KiB), so that
// scratch need not grow when a model with wider rows is loaded.
inline constexpr size_t kFetchTaskKeysMax = 4096;
inline constexpr size_t kFetchTaskRowBytesMax = size_t{2} << 20;

// Scratch buffers per blocking level. If all are in use, by calls or by work that outlived its
// call, the level counts as down for the calls that find none.
inline constexpr size_t kFetchScratchesMax = 64;

// Concurrent fetches in one table of the in-process level 2; each has a place of 128 bytes. The
// next fetch gets UNAVAILABLE, so the limit exceeds any machine's number of lookup threads.
inline constexpr size_t kFetchesPerTableMax = 512;

// Fetches that wait for a worker; for one more, the level counts as down for its call.
inline constexpr size_t kFetchesQueuedMax = 1024;

// Fetch workers that may help one device lookup: with 13 and the caller the gather of any batch is
// faster than the PCIe copy of its rows.
inline constexpr size_t kHelpersMax = 13;

// Promotions that wait for a worker; one more is dropped and counted.
inline constexpr size_t kPromotionsQueuedMax = 256;

// Device caches of one process: one per GPU of a node, with as many to spare.
inline constexpr size_t kCachesMax = 16;

// Concurrent lookups in one device's cache; each has its own buffers, tens of MiB with the
// defaults. This is the minimum if the configuration leaves the number to the machine, because
// threads that look up without a server need buffers too.
inline constexpr size_t kDeviceCallsMin = 16;
inline constexpr size_t kDeviceCallsMax = 1024;

// The staging of a GPU cache's writer, in pinned and again in device memory. A step of a write
// takes at most a quarter: transferring 8 MiB takes longer than a launch, and 8 MiB hold 512 of the
// widest rows.
inline constexpr size_t kWriterStagingBytes = size_t{32} << 20;

// Pinned memory of one GPU cache lookup for answers that are not in its staging, and for rows of
// outputs on the host. It has two halves: one is filled while the other is in transfer.
inline constexpr size_t kCallBounceBytes = size_t{2} << 20;
inline constexpr size_t kCallOutputBytes = size_t{4} << 20;

// Rows of one GPU cache lookup with outputs on the host: they are collected in device memory. 4 GiB
// are rows of 1 KiB for the largest call.
inline constexpr uint64_t kCallHostRowsBytesMax = uint64_t{4} << 30;

// Tables in one lookup, and tables in one store.
inline constexpr size_t kTablesPerCallMax = 1024;
inline constexpr size_t kTablesPerStoreMax = 4096;

// Maximum keys of one call: 4 Mi.
inline constexpr size_t kKeysPerCallMax = size_t{4} << 20;

// Tensors of one request in each direction, and bytes of a name or an id in it. Names of the store
// have at most 245 bytes; the client chooses the id, which is echoed.
inline constexpr size_t kTensorsPerRequestMax = 512;
inline constexpr size_t kProtocolNameBytesMax = 256;

// Concurrent gRPC calls; each needs about 2 KiB besides its tensors.
inline constexpr size_t kGrpcCallsMax = 8192;
// Of these, calls reserved for connections that have few calls, so that one connection with many
// calls can't take all. Health probes use these.
inline constexpr size_t kGrpcCallsKept = 512;
inline constexpr size_t kGrpcFewCalls = 4;
// Of these, streams, which idle clients may hold. The remaining calls are always available to unary
// calls.
inline constexpr size_t kGrpcStreamsMax = kGrpcCallsMax / 2;

// Requests that the server holds at a time, over all protocols; each needs a few hundred bytes
// besides its tensors.
inline constexpr size_t kServerCallsMax = 65'536;

// Stream partitions whose positions one table may have.
inline constexpr size_t kPositionsMax = 4096;

// Threads of one import. With more, each would have too small a share of the memory.
inline constexpr size_t kImportThreadsMax = 64;

// Sorted runs of one table of an import that does not fit into its memory. Each run needs 1 KiB
// besides that memory. With the default memory they hold a table of terabytes.
inline constexpr size_t kSortedRunsMax = 16384;

// Keys read at once from one file: 512 MiB.
inline constexpr size_t kKeysPerFileMax = size_t{64} << 20;

// Maximum size of a safetensors header; the format's own limit.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
// Maximum size of an .npy header: version 1.0 allows 64 KiB; a larger one is hostile.
inline constexpr uint64_t kNpyHeaderBytesMax = 64 << 10;
// Maximum size of a configuration file.
inline constexpr uint64_t kConfigBytesMax = 4 << 20;

}  // namespace hps
