// Rows that stay in a device's memory, from their lookup to the run of the network.
//
//   RowRoom::Room made = *room.Make(keys, row_bytes);   // the keys go to the device
//   ... a lookup on room.stream() writes made.rows ...
//   session.RunFromRows(samples, inputs, outputs);       // reads them there, on the same stream
//
// A large batch can go through in parts, each with a room of its own, so that the keys of a part
// are copied and looked up while the network runs for the parts before it (DenseSession::
// BeginParts).
//
// For one thread at a time, with the session that they belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/span.h"
#include "hps/types.h"

namespace hps {

// Keys in the host's memory, 8 bytes each, not necessarily aligned.
struct KeyPiece {
  const std::byte* keys = nullptr;
  size_t key_count = 0;
};

// Memory on a device for the keys of a batch and their rows. It is made with the room and keeps its
// size. A whole batch takes all of it, a batch in parts a third for each part.
class RowRoom {
 public:
  // Of the rows in a room, at most. 65,536 samples with 26 rows of 128 elements take 0.9 GB.
  static constexpr uint64_t kRowBytesMax = uint64_t{1} << 30;
  // A room has as much where batches can be so large: 4,096 samples with 26 rows of 128 elements
  // take 55 MB.
  static constexpr uint64_t kRowBytesLeast = uint64_t{64} << 20;
  // Rows of each table begin at a multiple of this: the network's kernels read them in vectors.
  static constexpr uint64_t kTableAlignment = 256;
  // Parts of a batch whose rows are there at the same time: that of a lookup, and two more that the
  // network has not read yet.
  static constexpr size_t kPartsMax = 3;

  // In the device's memory, each at a multiple of 256 bytes; until the next Make.
  struct Room {
    const Key* keys = nullptr;      // [n], of the pieces one after the other
    std::byte* rows = nullptr;      // [row_bytes]
    KeyStatus* statuses = nullptr;  // [n]
  };

  virtual ~RowRoom() = default;

  // Of a whole batch, or of a part.
  virtual uint64_t keys_max() const = 0;
  // Of a whole batch.
  virtual uint64_t row_bytes() const = 0;
  uint64_t part_row_bytes() const {
    return row_bytes() / kPartsMax / kTableAlignment * kTableAlignment;
  }

  // What reads the keys and writes the rows has to be enqueued here.
  virtual Stream stream() const = 0;

  // Copies the keys to the device, in stream order; `pieces` may go when it returns. First waits
  // for earlier work of the stream, at most a tenth of a second. Errors: RESOURCE_EXHAUSTED (more
  // than the room takes), DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL.
  virtual absl::StatusOr<Room> Make(std::span<const KeyPiece> pieces, uint64_t row_bytes) = 0;

  // The same for part number `part` of a batch, from 0 on. Its rows stay until the MakePart of part
  // + kPartsMax, its keys until the next one. Waits for the lookups of earlier parts alone.
  // REQUIRES: the network has read the rows of part - kPartsMax, and of earlier batches.
  virtual absl::StatusOr<Room> MakePart(std::span<const KeyPiece> pieces, uint64_t row_bytes,
                                        size_t part) = 0;

  // Copies the statuses of the room's keys, [n], to the host, in stream order. REQUIRES: the lookup
  // has read the keys. Errors: DEADLINE_EXCEEDED (after a second), UNAVAILABLE, INTERNAL.
  virtual absl::Status ReadStatuses(std::span<KeyStatus> to) = 0;
};

// Samples [begin, begin + count) of a batch.
struct SampleRange {
  uint64_t begin = 0;
  uint64_t count = 0;
};

// The rows of one sample: rows [begin, end) of an input's.
struct BagPlace {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// What one input of a run is made of.
struct FedInput {
  // Of an input that the client sent: the host's memory, [samples, ...], row-major, aligned to its
  // elements.
  std::span<const std::byte> sent{};

  // Else rows of float32 on the device.
  uint32_t dim = 0;  // elements of a row; 0 = it was sent
  const float* rows = nullptr;
  // Sample i has the rows of bags[i] or, where there are none, [i x sample_rows, (i + 1) x
  // sample_rows).
  std::span<const BagPlace> bags{};  // the host's memory
  uint64_t sample_rows = 1;
  RowPooling pooling = RowPooling::kSum;  // kNone: each sample has sample_rows rows
};

}  // namespace hps
