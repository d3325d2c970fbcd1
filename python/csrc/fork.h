// Tells the extension that its process was forked.
#pragma once

#include <cstdint>
#include <memory>

namespace hps::python {

// Number of forks between the process that loaded the extension and this one.
uint64_t ForkCount();

// To be called before a store is used. Raises hps.FailedPreconditionError if `writes` and this
// process was forked after another call: RocksDB's threads, which write and merge its files, are
// not in it. A process that was forked after a call ends without waiting for these threads.
void CheckFork(bool writes);

// Never destroys the object.
void KeepForever(std::shared_ptr<void> object);

}  // namespace hps::python
