// The options of a table, as hps.train gives them.
#pragma once

#include "nanobind/nanobind.h"
#include "train/table_rows.h"

namespace hps::python {

// Raises what a cast raises if a value is missing or has a wrong type. The numbers are not checked.
ShardOptions OptionsOf(const nanobind::dict& d);

}  // namespace hps::python
