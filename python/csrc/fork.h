// Tells the extension that its process was forked.
#pragma once

#include <cstdint>
#include <memory>

namespace hps::python {

// Number of forks between the process that loaded the extension and this one.
uint64_t ForkCount();

// Never destroys the object.
void KeepForever(std::shared_ptr<void> object);

}  // namespace hps::python
