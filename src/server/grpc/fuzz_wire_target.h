// What a fuzzer feeds: a server of gRPC over a real store, as a stranger's connection finds it. It
// checks what must hold whatever a client sends, and crashes (or a sanitizer does) when it does
// not.
//
// Thread-safe: one input at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hps::server {

// The first byte says how the rest is sent: as it is, or as frames whose heads are put together so
// that a mutant stays in step (fuzz_target.cc). The server must end the connection soon after its
// client has, hold nothing of it then, and go on answering others.
void FuzzGrpcWire(std::span<const std::byte> bytes);

// Inputs that reach most of what there is: to begin a corpus with.
std::vector<std::string> GrpcWireSeeds();

}  // namespace hps::server
