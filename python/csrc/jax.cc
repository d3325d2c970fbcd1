// The handler of hps.jax: what a program that XLA has compiled calls for a lookup.
//
// XLA calls it on a thread of its own, without the GIL. It passes the addresses of keys and rows to
// hps.jax._answer, which finds the session; the lookup itself gives the GIL back.
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/string_view.h"
#include "python/csrc/bindings.h"
#include "xla/ffi/api/ffi.h"

namespace hps::python {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;

// The name that XLA expects of the capsule of a handler.
constexpr const char* kCapsuleName = "xla._CUSTOM_CALL_TARGET";

const char* TypeName(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::S32:
      return "int32";
    case ffi::DataType::S64:
      return "int64";
    case ffi::DataType::U8:
      return "uint8";
    case ffi::DataType::U32:
      return "uint32";
    case ffi::DataType::U64:
      return "uint64";
    case ffi::DataType::F32:
      return "float32";
    default:
      return "another type";
  }
}

// (address, element count, dtype name), as ReadArray takes it.
nb::tuple MemoryOf(const ffi::AnyBuffer& buffer) {
  return nb::make_tuple(reinterpret_cast<uintptr_t>(buffer.untyped_data()), buffer.element_count(),
                        TypeName(buffer.element_type()));
}

ffi::Error Answer(std::string_view session, std::string_view tables, ffi::RemainingArgs keys,
                  ffi::RemainingRets outputs) {
  nb::list key_memory;
  nb::list output_memory;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto buffer = keys.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    key_memory.append(MemoryOf(*buffer));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto buffer = outputs.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    output_memory.append(MemoryOf(**buffer));
  }
  const nb::object error = nb::module_::import_("hps.jax").attr("_answer")(
      nb::str(session.data(), session.size()), nb::str(tables.data(), tables.size()), key_memory,
      output_memory);
  if (error.is_none()) return ffi::Error::Success();
  return {static_cast<ffi::ErrorCode>(nb::cast<int>(error[0])), nb::cast<std::string>(error[1])};
}

// Keys of each table, then their rows, then their statuses if they are wanted.
ffi::Error Lookup(std::string_view session, std::string_view tables, ffi::RemainingArgs keys,
                  ffi::RemainingRets outputs) {
  const nb::gil_scoped_acquire acquired;
  try {
    return Answer(session, tables, keys, outputs);
  } catch (const std::exception& error) {
    return {ffi::ErrorCode::kInternal, error.what()};
  }
}

XLA_FFI_DEFINE_HANDLER(kLookup, Lookup,
                       ffi::Ffi::Bind()
                           .Attr<std::string_view>("session")
                           .Attr<std::string_view>("tables")
                           .RemainingArgs()
                           .RemainingRets());

}  // namespace

void BindJax(nb::module_& module) {
  module.def("jax_handler",
             [] { return nb::capsule(reinterpret_cast<const void*>(kLookup), kCapsuleName); });
}

}  // namespace hps::python
