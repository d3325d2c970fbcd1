// Lookups: sessions for the threads that ask, and the memory that they read and write.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hps/lookup_cancel.h"
#include "hps/lookup_session.h"
#include "hps/store.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/arrays.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/sessions.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

struct ModelSession {
  explicit ModelSession(std::unique_ptr<ThreadSessions> sessions)
      : handle(std::move(sessions), "session") {}

  Handle<ThreadSessions> handle;
  std::vector<TableSpec> tables;
};

// Operators of frameworks find it by `name`.
std::unique_ptr<ModelSession> NewSession(const OpenStore& open, const std::string& model,
                                         int device, size_t keys_max, const std::string& name) {
  const SessionOptions options{
      .device = device, .output_dtype = Dtype::kFloat32, .keys_max = keys_max};
  auto session = std::make_unique<ModelSession>(
      ValueOrRaise(ThreadSessions::Make(open.handle.Use(), model, options)));
  const std::shared_ptr<ThreadSessions> sessions = session->handle.Use();
  session->tables = sessions->tables();
  PublishSessions(name, sessions);
  return session;
}

// Output memory: one array for all tables, one after the other, or a list with one for each.
class OutputArrays {
 public:
  OutputArrays(nb::handle object, const char* name, ElementType type)
      : object_(object), name_(name), type_(type) {
    is_list_ = nb::isinstance<nb::list>(object);
    if (!is_list_ && !object.is_none()) rest_ = Bytes(object, {name_}, block_);
  }

  bool is_list() const { return is_list_; }

  // The memory of the next table, `index`. Raises if there is less, or if its own array has
  // another size.
  std::span<std::byte> Next(size_t index, size_t bytes, std::string_view table) {
    if (object_.is_none()) return {};
    if (!is_list_) {
      if (rest_.size() < bytes) RaiseSize({name_, table}, bytes, rest_.size());
      return std::exchange(rest_, rest_.subspan(bytes)).first(bytes);
    }
    Array array;
    const std::span<std::byte> memory = Bytes(object_[index], {name_, table}, array);
    if (memory.size() != bytes) RaiseSize({name_, table}, bytes, memory.size());
    owners_.push_back(std::move(array));
    return memory;
  }

 private:
  std::span<std::byte> Bytes(nb::handle object, const Argument& argument, Array& array) const {
    array = ReadArray(object, argument, true);
    if (array.type != type_) {
      RaiseInvalid(absl::StrCat(argument.Text(), ": expected ", std::string(ElementTypeName(type_)),
                                ", found ", array.TypeName()));
    }
    return {static_cast<std::byte*>(array.data), array.size * ElementTypeBytes(type_)};
  }
  [[noreturn]] static void RaiseSize(const Argument& argument, size_t expected, size_t found) {
    RaiseInvalid(absl::StrCat(argument.Text(), ": expected an array of ", expected,
                              " bytes, found one of ", found));
  }

  const nb::handle object_;
  const char* const name_;
  const ElementType type_;
  bool is_list_ = false;
  Array block_;
  std::span<std::byte> rest_;
  std::vector<Array> owners_;
};

// The queries of a call with what keeps their memory alive.
template <MemorySpace kSpace>
struct Queries {
  std::vector<TableQuery<kSpace>> queries;
  std::vector<Array> arrays;
  std::vector<std::vector<Key>> widened;
};

// Keys in device memory, which can't be read here, so that they must be 64 bits wide.
DeviceSpan<const Key> ReadDeviceKeys(nb::handle object, const Argument& argument, Array& array) {
  array = ReadArray(object, argument, false);
  if (array.type != ElementType::kInt64 && array.type != ElementType::kUint64) {
    RaiseInvalid(
        absl::StrCat(argument.Text(), ": expected int64 or uint64, found ", array.TypeName()));
  }
  return {static_cast<const Key*>(array.data), array.size};
}

// The numbers of `tables` and the arrays of `keys` side by side.
template <MemorySpace kSpace>
void ReadQueries(const ModelSession& session, nb::list tables, nb::list keys,
                 Queries<kSpace>& read) {
  const size_t count = tables.size();
  read.queries.resize(count);
  read.arrays.resize(count);
  read.widened.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const auto table = nb::cast<uint32_t>(tables[i]);
    if (table >= session.tables.size()) RaiseInvalid("table: no such number");
    const Argument argument{"keys", session.tables[table].name};
    read.queries[i].table = {table};
    if constexpr (kSpace == MemorySpace::kHost)
      read.queries[i].keys = ReadKeys(keys[i], argument, read.widened[i], read.arrays[i]);
    else
      read.queries[i].keys = ReadDeviceKeys(keys[i], argument, read.arrays[i]);
  }
}

// Refuses rows of one table in the memory of another's, which would be lost, and rows in the memory
// of keys, which may not have been read yet.
template <MemorySpace kSpace>
void RequireApart(const ModelSession& session, const Queries<kSpace>& read) {
  using Query = TableQuery<kSpace>;
  const auto begin_of = [](const Query* query) { return query->rows.data(); };
  const auto end_of = [](const Query* query) { return query->rows.data() + query->rows.size(); };
  const auto name_of = [&](const Query* query) { return session.tables[query->table.value].name; };
  std::vector<const Query*> sorted;
  sorted.reserve(read.queries.size());
  for (const Query& query : read.queries) {
    if (!query.rows.empty()) sorted.push_back(&query);
  }
  std::ranges::sort(sorted, {}, begin_of);
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (begin_of(sorted[i]) >= end_of(sorted[i - 1])) continue;
    RaiseInvalid(absl::StrCat("out: the memory of two tables overlaps: '", name_of(sorted[i - 1]),
                              "' and '", name_of(sorted[i]), "'"));
  }
  for (const Array& keys : read.arrays) {
    const auto* const begin = static_cast<const std::byte*>(keys.data);
    const std::byte* const end = begin + keys.size * ElementTypeBytes(keys.type);
    // The first rows that end behind the beginning of the keys.
    const auto rows = std::ranges::upper_bound(sorted, begin, {}, end_of);
    if (begin == end || rows == sorted.end() || begin_of(*rows) >= end) continue;
    RaiseInvalid(absl::StrCat("out of table '", name_of(*rows), "': overlaps the memory of keys"));
  }
}

// `options` is None or (timeout or None, hit_rate_threshold or None, LookupCancel or None, the
// thread that the lookup is for).
template <MemorySpace kSpace>
LookupRequest<kSpace> ReadOptions(nb::handle options) {
  LookupRequest<kSpace> request;
  if (options.is_none()) return request;
  const nb::object timeout = options[0];
  const nb::object threshold = options[1];
  const nb::object cancel = options[2];
  if (!timeout.is_none())
    request.timeout = Seconds(Cast<double>(timeout, "timeout", "a number of seconds"));
  if (!threshold.is_none())
    request.hit_rate_threshold = Cast<double>(threshold, "hit_rate_threshold", "a number");
  if (!cancel.is_none()) request.cancel = nb::cast<LookupCancel*>(cancel);
  return request;
}

template <MemorySpace kSpace>
void LookupIn(ModelSession& session, nb::list tables, nb::list keys, nb::tuple outputs,
              nb::handle options) {
  const std::shared_ptr<ThreadSessions> sessions = session.handle.Use();
  LookupRequest<kSpace> request = ReadOptions<kSpace>(options);
  Queries<kSpace> read;
  ReadQueries(session, tables, keys, read);
  OutputArrays rows(outputs[0], "out", ElementType::kFloat32);
  OutputArrays status(outputs[1], "status", ElementType::kUint8);
  for (size_t i = 0; i < read.queries.size(); ++i) {
    TableQuery<kSpace>& query = read.queries[i];
    const TableSpec& spec = session.tables[query.table.value];
    const size_t count = query.keys.size();
    const std::span<std::byte> memory = rows.Next(i, count * spec.dim * sizeof(float), spec.name);
    query.rows = {memory.data(), memory.size()};
    const std::span<std::byte> bytes = status.Next(i, count, spec.name);
    query.status = {reinterpret_cast<KeyStatus*>(bytes.data()), bytes.size()};
  }
  request.queries = read.queries;
  if (rows.is_list()) RequireApart(session, read);
  if constexpr (kSpace == MemorySpace::kDevice)
    request.stream.handle = reinterpret_cast<void*>(nb::cast<uintptr_t>(outputs[2]));
  const uint64_t thread =
      options.is_none() ? PyThread_get_thread_ident() : nb::cast<uint64_t>(options[3]);
  absl::Status done;
  {
    const ReleasedGil released;
    done = sessions->Lookup(request, thread);
  }
  RaiseIfError(done);
}

void Lookup(ModelSession& session, nb::list tables, nb::list keys, nb::tuple outputs,
            nb::handle options) {
  LookupIn<MemorySpace::kHost>(session, tables, keys, outputs, options);
}

// All arrays are tuples of addresses in the memory of the session's device. `outputs` has the rows,
// the statuses and a cudaStream_t, in whose order the rows are there.
void LookupOnDevice(ModelSession& session, nb::list tables, nb::list keys, nb::tuple outputs,
                    nb::handle options) {
  LookupIn<MemorySpace::kDevice>(session, tables, keys, outputs, options);
}

nb::list Tables(const ModelSession& session) {
  nb::list tables;
  for (const TableSpec& spec : session.tables) {
    const std::string_view dtype = DtypeName(spec.dtype);
    tables.append(nb::make_tuple(spec.name, spec.dim, nb::str(dtype.data(), dtype.size())));
  }
  return tables;
}

}  // namespace

void BindSession(nb::module_& module) {
  nb::class_<LookupCancel>(module, "Cancel").def(nb::init<>()).def("cancel", &LookupCancel::Cancel);
  nb::class_<ModelSession>(module, "Session")
      .def("close", [](ModelSession& session) { session.handle.Close(); })
      .def_prop_ro("is_open", [](const ModelSession& session) { return session.handle.is_open(); })
      .def("tables", Tables)
      .def("lookup", Lookup, nb::arg("tables"), nb::arg("keys"), nb::arg("outputs"),
           nb::arg("options").none())
      .def("lookup_on_device", LookupOnDevice, nb::arg("tables"), nb::arg("keys"),
           nb::arg("outputs"), nb::arg("options").none());
  module.def("session", NewSession, nb::arg("store"), nb::arg("model"), nb::arg("device"),
             nb::arg("keys_max"), nb::arg("name"));
}

}  // namespace hps::python
