// Every maximum of the process, in one place, with the reason for its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hps {

// Keys that one RocksDB MultiGet asks for: its deadline is checked between pieces, and a piece of
// 256 keys ends within a millisecond or two when its blocks are cached.
inline constexpr size_t kFetchPieceKeysMax = 256;

// Readers of one epoch domain. The server has a session for each lookup slot, model and version in
// use: 128 slots x 32 models x 2 versions are 8,192. A place takes 64 bytes when it is used.
inline constexpr size_t kEpochReadersMax = size_t{1} << 20;

// Keys and row bytes of one task of a blocking level: one scratch buffer holds both. 2 MiB are
// 4,096 rows of 512 bytes; of wider rows a task takes fewer (128 of the widest, 16 KiB), so that
// scratch need not grow when a model with wider rows is loaded.
inline constexpr size_t kFetchTaskKeysMax = 4096;
inline constexpr size_t kFetchTaskRowBytesMax = size_t{2} << 20;

// Scratch buffers per blocking level. When all are held, by calls or by work that outlived its
// call, the level counts as down for the calls that find none.
inline constexpr size_t kFetchScratchesMax = 64;

// Fetches that may be inside one table of the in-process level 2 at a time; each has a place of 128
// bytes. The next one gets UNAVAILABLE, so this is more than any machine has threads for lookups.
inline constexpr size_t kFetchesPerTableMax = 512;

// Fetches that wait for a worker; one more and the level counts as down for its call.
inline constexpr size_t kFetchesQueuedMax = 1024;

// Fetch workers that may help one device lookup: with 13 and the caller the gather of any batch is
// faster than the PCIe copy of its rows.
inline constexpr size_t kHelpersMax = 13;

// Promotions that wait for a worker; one more is dropped and counted.
inline constexpr size_t kPromotionsQueuedMax = 256;

// Device caches of one process: one for each GPU of a node, and as many to spare.
inline constexpr size_t kCachesMax = 16;

// Lookups at a time in one device's cache; each has buffers of its own, tens of MiB with the
// defaults. So many at least where the configuration leaves it to the machine: threads that look up
// without a server need them too.
inline constexpr size_t kDeviceCallsMin = 16;
inline constexpr size_t kDeviceCallsMax = 1024;

// The staging of a GPU cache's writer, in pinned and once more in device memory. A step of a write
// takes at most a quarter: 8 MiB travel for longer than a launch takes, and hold 512 of the widest
// rows.
inline constexpr size_t kWriterStagingBytes = size_t{32} << 20;

// Pinned memory of one lookup at a GPU cache through which answers travel that do not lie in its
// staging, and rows for outputs on the host: two halves, one under way while the other is filled.
inline constexpr size_t kCallBounceBytes = size_t{2} << 20;
inline constexpr size_t kCallOutputBytes = size_t{4} << 20;

// Rows of one lookup at a GPU cache whose outputs lie on the host: they are collected in the
// device's memory. 4 GiB are rows of 1 KiB for the largest call.
inline constexpr uint64_t kCallHostRowsBytesMax = uint64_t{4} << 30;

// Tables that one lookup may ask, and tables of one store.
inline constexpr size_t kTablesPerCallMax = 1024;
inline constexpr size_t kTablesPerStoreMax = 4096;

// Largest number of keys of one call: 4 Mi.
inline constexpr size_t kKeysPerCallMax = size_t{4} << 20;

// Tensors of one request in each direction, and bytes of a name or an id in it. Names of the store
// have at most 245 bytes; an id is the client's, and echoed.
inline constexpr size_t kTensorsPerRequestMax = 512;
inline constexpr size_t kProtocolNameBytesMax = 256;

// Calls that gRPC works on at a time; each has about 2 KiB beside its tensors.
inline constexpr size_t kGrpcCallsMax = 8192;
// Of them for connections that have few: one with many can't take all. Probes come by these.
inline constexpr size_t kGrpcCallsKept = 512;
inline constexpr size_t kGrpcFewCalls = 4;
// Of them streams, which idle clients may hold: the others are always there for who asks once.
inline constexpr size_t kGrpcStreamsMax = kGrpcCallsMax / 2;

// Requests that the server holds at a time, over all protocols; each has a few hundred bytes beside
// its tensors.
inline constexpr size_t kServerCallsMax = 65'536;

// Partitions whose positions one table may have.
inline constexpr size_t kPositionsMax = 4096;

// Threads of one import: more would each have too small a share of its memory.
inline constexpr size_t kImportThreadsMax = 64;

// Sorted runs of one table of an import that does not fit its memory: what is known of them takes
// 1 KiB each beside that memory. With the default memory they hold a table of terabytes.
inline constexpr size_t kSortedRunsMax = 16384;

// Keys that are read at once from one file: 512 MiB of them.
inline constexpr size_t kKeysPerFileMax = size_t{64} << 20;

// A safetensors header may be this large; the format's own limit.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
// An .npy header: version 1.0 allows 64 KiB; more is hostile.
inline constexpr uint64_t kNpyHeaderBytesMax = 64 << 10;
// A configuration file.
inline constexpr uint64_t kConfigBytesMax = 4 << 20;

}  // namespace hps
