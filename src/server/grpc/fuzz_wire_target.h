// The fuzz target: a gRPC server over a real store, which gets an input as the bytes of a client.
// The target checks what must hold for all inputs, and aborts if it does not.
//
// Thread-safe: one input at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hps::server {

// The first byte of an input says how the rest is sent: unchanged, or as frames whose heads are
// built so that mutations keep the frames valid (fuzz_wire_target.cc). The server must end the
// connection soon after its client, hold nothing of it then, and still answer other clients.
void FuzzGrpcWire(std::span<const std::byte> bytes);

// Inputs that reach most of the code, to begin a corpus with.
std::vector<std::string> GrpcWireSeeds();

}  // namespace hps::server
