#include "python/csrc/train_options.h"

#include <cstdint>
#include <string>

#include "python/csrc/bindings.h"
#include "train/initializer.h"
#include "train/sparse_optimizer.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

// Leaves the value as it is if the dict has none.
template <typename T>
void Read(const nb::dict& d, const char* name, T& value) {
  if (d.contains(name)) value = nb::cast<T>(d[name]);
}

SparseOptimizer OptimizerOf(const nb::dict& d) {
  SparseOptimizer optimizer{.kind = static_cast<OptimizerKind>(nb::cast<int>(d["kind"]))};
  Read(d, "epsilon", optimizer.epsilon);
  Read(d, "initial_accumulator", optimizer.initial_accumulator);
  Read(d, "beta1", optimizer.beta1);
  Read(d, "beta2", optimizer.beta2);
  Read(d, "momentum", optimizer.momentum);
  Read(d, "l1", optimizer.l1);
  Read(d, "l2", optimizer.l2);
  Read(d, "beta", optimizer.beta);
  Read(d, "weight_decay", optimizer.weight_decay);
  return optimizer;
}

Initializer InitializerOf(const nb::dict& d) {
  Initializer initializer{.kind = static_cast<InitializerKind>(nb::cast<int>(d["kind"]))};
  Read(d, "low", initializer.low);
  Read(d, "high", initializer.high);
  Read(d, "seed", initializer.seed);
  Read(d, "mean", initializer.mean);
  Read(d, "deviation", initializer.deviation);
  Read(d, "probability_low", initializer.probability_low);
  Read(d, "probability_high", initializer.probability_high);
  return initializer;
}

}  // namespace

ShardOptions OptionsOf(const nb::dict& d) {
  ShardOptions options;
  options.name = nb::cast<std::string>(d["name"]);
  options.dim = nb::cast<uint32_t>(d["dim"]);
  options.dtype = static_cast<Dtype>(nb::cast<int>(d["dtype"]));
  options.optimizer = OptimizerOf(nb::cast<nb::dict>(d["optimizer"]));
  options.initializer = InitializerOf(nb::cast<nb::dict>(d["initializer"]));
  options.admit_after = nb::cast<uint32_t>(d["admit_after"]);
  options.expire_after = nb::cast<uint32_t>(d["expire_after"]);
  options.rows_max = nb::cast<uint64_t>(d["rows_max"]);
  return options;
}

}  // namespace hps::python
