// What a fuzzer feeds: the parser that sees a gRPC stranger's bytes first. It checks what must hold
// for any input and crashes (or a sanitizer does) when it does not.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <span>

namespace hps::server {

// A serialized ModelInferRequest. Returns whether it was one that can be asked.
bool FuzzGrpcInfer(std::span<const std::byte> message);

}  // namespace hps::server
