// A network is compiled and run once in a process of its own, with limits of memory and time,
// before an import takes it and before this process compiles it: what crashes the engine, hangs it
// or takes all memory, ends there.
//
// The process is a program that calls RunNetworkCheck; `hps` is one. A process that has named none
// (a library in another program) takes and compiles networks without this check.
#pragma once

#include "absl/status/status.h"
#include "hps/model_network.h"

namespace hps {

// The path of the program, which has "check-network" for its only argument. The text lives as long
// as the process.
void SetNetworkCheckProgram(const char* path);

// Errors: INVALID_ARGUMENT (the network was refused, crashed, or took more than its time or memory;
// with the reason), RESOURCE_EXHAUSTED, UNAVAILABLE (the process could not be started, or its
// result is lost because this process ignores SIGCHLD).
absl::Status CheckNetworkApart(const ModelNetwork& network);

// What the program does: reads a network from standard input, compiles it and, where all dimensions
// but the batch are known, runs it once with zeros; writes why not to standard output. The exit
// status of the program; success also in a build without an engine.
int RunNetworkCheck();

}  // namespace hps
