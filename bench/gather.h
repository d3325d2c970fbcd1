// The bound of every lookup in host memory: copying rows whose addresses are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hps::bench {

// One way to write a gather; which is fastest depends on the machine, the row and the batch.
struct GatherShape {
  size_t ahead = 32;       // rows whose lines are asked for before the one that is copied
  bool far = false;        // they are asked for into the second-level cache only
  bool streaming = false;  // stores that pass the caches by
};

// All that are worth a try on this machine.
std::vector<GatherShape> GatherShapes();

// Copies rows[i] to out + i * row_bytes. REQUIRES: rows and out are aligned to 64 bytes and
// row_bytes is a multiple of 64.
void Gather(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
            GatherShape shape);

// The floor of every exact index that is larger than the caches: before a row's address is known,
// one more line has to come from memory. Copies (rows[i] + *lines[i]) to out + i * row_bytes; the
// offsets in `lines` are 0. REQUIRES: as Gather; both spans have one size.
void GatherThroughLines(std::span<const uint64_t* const> lines,
                        std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
                        GatherShape shape);

}  // namespace hps::bench
