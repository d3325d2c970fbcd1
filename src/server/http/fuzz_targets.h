// What a fuzzer feeds: the parsers that see a stranger's bytes first. Each checks what must hold
// for any input and crashes (or a sanitizer does) when it does not.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <span>

namespace hps::server {

// A head, then a chunked body; the first byte says in which pieces they arrive.
void FuzzHttpRequest(std::span<const std::byte> bytes);

// The JSON of an infer request.
void FuzzV2Json(std::span<const std::byte> bytes);

// The first two bytes are the length of the JSON; binary tensors follow it.
void FuzzBinaryTensor(std::span<const std::byte> bytes);

// The first byte says whether the body that follows is packed by gzip or deflate.
void FuzzInflate(std::span<const std::byte> bytes);

}  // namespace hps::server
