// What the module hps._hps consists of: one function for each file of bindings. The package in
// python/hps gives users names, defaults and documentation; nothing here is public.
//
// Every file of bindings includes this header, and with it the casters of strings and pointers:
// files that disagree about a type's caster make the extension fail in ways that no message names.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "hps/config.h"
#include "hps/store.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/handle.h"

namespace hps::python {

// An open store, as Python code holds it. Several may be of one store, which closes with the last.
struct OpenStore {
  OpenStore(Config store_config, std::shared_ptr<Store> store)
      : config(std::move(store_config)), handle(std::move(store), "store") {}

  const Config config;
  Handle<Store> handle;
};

// The settings of the file `config` (None: defaults), with `path` (None: the file's) for the store.
// Raises the errors of LoadConfig, and FailedPreconditionError if the store is to be written by a
// process that was forked after the extension was used: threads that write files are not in it.
Config ReadConfig(nanobind::handle path, nanobind::handle config, bool writes);

// A path of Python, which may be bytes of no text.
std::string ReadPath(nanobind::handle path, const char* name);

std::chrono::nanoseconds Seconds(double seconds);

void BindStore(nanobind::module_& module);
void BindSession(nanobind::module_& module);
void BindPrediction(nanobind::module_& module);
void BindTransfer(nanobind::module_& module);
void BindProducer(nanobind::module_& module);
void BindServer(nanobind::module_& module);
void BindTrain(nanobind::module_& module);
void BindTrainSteps(nanobind::module_& module);   // called by BindTrain
void BindTrainDevice(nanobind::module_& module);  // the same
void BindJax(nanobind::module_& module);
void BindTorch(nanobind::module_& module);
void BindTensorflow(nanobind::module_& module);

}  // namespace hps::python
