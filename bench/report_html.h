// The page that `hps bench --html` writes: plots, and every figure beside its bound and target.
//
// One file that loads nothing and runs no script: it can be kept, mailed and opened without a
// network. It follows the reader's light or dark, says in words and shapes what it says in colours,
// and is well-formed XML.
#pragma once

#include <string>

#include "bench/report_reader.h"

namespace hps::bench {

std::string ReportHtml(const Report& report);

}  // namespace hps::bench
