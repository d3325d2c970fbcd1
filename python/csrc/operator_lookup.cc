#include "python/csrc/operator_lookup.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "nanobind/stl/string.h"
#include "python/csrc/fork.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

// Targets that are remembered; all are forgotten when there are more.
constexpr size_t kTargetsMax = 1024;

struct Found {
  std::weak_ptr<ThreadSessions> sessions;  // expired = closed
  std::vector<TableIndex> indexes;
  std::vector<uint32_t> dims;
};

// The target that a thread has asked last, which it mostly asks again.
struct LastTarget {
  std::string source;
  std::string tables;
  int device = -1;
  std::shared_ptr<const Found> found;
};

struct Cache {
  Mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const Found>> found HPS_GUARDED_BY(mutex);
};

// Never destroyed: threads of frameworks may end after this library's other objects.
Cache& TheCache() {
  static auto* const cache = new Cache;
  return *cache;
}

std::string_view ModelOf(std::string_view tables) { return tables.substr(0, tables.find('/')); }

// The name of the session that the framework uses for a target.
absl::StatusOr<std::string> AskFinder(const OperatorTarget& target) {
  const nb::gil_scoped_acquire acquired;
  try {
    const std::string_view model = ModelOf(target.tables);
    const nb::object answer =
        nb::borrow(target.finder)(nb::str(target.source.data(), target.source.size()),
                                  nb::str(model.data(), model.size()), target.device);
    if (nb::isinstance<nb::str>(answer)) return nb::cast<std::string>(answer);
    return absl::Status(static_cast<absl::StatusCode>(nb::cast<int>(answer[0])),
                        nb::cast<std::string>(answer[1]));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

absl::StatusOr<std::shared_ptr<ThreadSessions>> FindOpenSessions(const OperatorTarget& target) {
  std::string name(target.source);
  std::shared_ptr<ThreadSessions> sessions = FindSessions(name);
  if (sessions == nullptr && target.finder != nullptr) {
    absl::StatusOr<std::string> answer = AskFinder(target);
    if (!answer.ok()) return answer.status();
    name = *std::move(answer);
    sessions = FindSessions(name);
  }
  if (sessions == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this session is closed: '", name,
                     "'; keep it for as long as the functions that were compiled with it"));
  }
  if (sessions->fork_count() != ForkCount()) {
    return absl::FailedPreconditionError(
        "this session was made before fork(): open the store in this process");
  }
  return sessions;
}

absl::Status CheckDevice(const ThreadSessions& sessions, int device) {
  const int mine = sessions.options().device;
  // A session of a GPU also answers from the host's memory.
  if (device == -1 || device == mine || (device == kSomeDevice && mine >= 0))
    return absl::OkStatus();
  const std::string place = device == kSomeDevice ? "cuda:N" : absl::StrCat("cuda:", device);
  return absl::InvalidArgumentError(
      absl::StrCat("keys: on ", device == kSomeDevice ? "a GPU" : place, ", and the session is of ",
                   mine < 0 ? std::string("the host") : absl::StrCat("cuda:", mine),
                   "; make one with device='", place, "'"));
}

// Adds the table of one line of OperatorTarget::tables.
absl::Status AddTable(const ThreadSessions& sessions, std::string_view line, Found& found) {
  const size_t colon = line.rfind(':');
  uint32_t dim = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(line.substr(colon + 1)), &dim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tables: expected 'model/table:dim', found '", std::string(line), "'"));
  }
  const std::string name(line.substr(0, colon));
  const auto table = std::ranges::find(sessions.tables(), name, &TableSpec::name);
  if (table == sessions.tables().end())
    return absl::NotFoundError(absl::StrCat("table: the store has no table '", name, "'"));
  if (table->dim != dim) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", name, "': expected the dim ", dim, ", found ", table->dim));
  }
  found.indexes.push_back({static_cast<uint32_t>(table - sessions.tables().begin())});
  found.dims.push_back(dim);
  return absl::OkStatus();
}

OperatorTables TablesOf(std::shared_ptr<const Found> found,
                        std::shared_ptr<ThreadSessions> sessions) {
  OperatorTables tables{std::move(sessions), found->indexes, found->dims, nullptr};
  tables.owner = std::move(found);
  return tables;
}

// Keys as 64 bits; narrower ones of host memory are widened into `wide`.
absl::StatusOr<const Key*> WideKeys(const OperatorKeys& keys, bool is_on_device,
                                    std::vector<Key>& wide) {
  if (keys.type == ElementType::kInt64 || keys.type == ElementType::kUint64)
    return static_cast<const Key*>(keys.data);
  if (!is_on_device && keys.type == ElementType::kInt32) {
    const std::span narrow(static_cast<const int32_t*>(keys.data), keys.count);
    wide.assign(narrow.begin(), narrow.end());
    return wide.data();
  }
  if (!is_on_device && keys.type == ElementType::kUint32) {
    const std::span narrow(static_cast<const uint32_t*>(keys.data), keys.count);
    wide.assign(narrow.begin(), narrow.end());
    return wide.data();
  }
  return absl::InvalidArgumentError(is_on_device ? "expected int64 or uint64"
                                                 : "expected int64, uint64, int32 or uint32");
}

template <MemorySpace kSpace>
absl::Status LookUpIn(const OperatorTables& tables, std::span<const OperatorKeys> keys,
                      const OperatorOutputs& outputs, Stream stream) {
  constexpr bool kIsOnDevice = kSpace == MemorySpace::kDevice;
  std::vector<TableQuery<kSpace>> queries(keys.size());
  std::vector<std::vector<Key>> wide(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const absl::StatusOr<const Key*> data = WideKeys(keys[i], kIsOnDevice, wide[i]);
    if (!data.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("keys of table '", tables.sessions->tables()[tables.indexes[i].value].name,
                       "': ", std::string(data.status().message())));
    }
    void* const memory = outputs.rows[i];
    queries[i].table = tables.indexes[i];
    queries[i].keys = {*data, keys[i].count};
    queries[i].rows = {static_cast<std::byte*>(memory),
                       keys[i].count * tables.dims[i] * sizeof(float)};
    if (!outputs.statuses.empty()) queries[i].status = {outputs.statuses[i], keys[i].count};
  }
  LookupRequest<kSpace> request;
  request.queries = queries;
  request.stream = stream;
  return tables.sessions->Lookup(request, PyThread_get_thread_ident());
}

// Null if the sessions are closed, or of another process.
std::shared_ptr<ThreadSessions> OpenSessionsOf(const Found& found) {
  std::shared_ptr<ThreadSessions> sessions = found.sessions.lock();
  return sessions != nullptr && sessions->fork_count() == ForkCount() ? sessions : nullptr;
}

absl::StatusOr<std::shared_ptr<const Found>> FindAnew(const OperatorTarget& target) {
  const absl::StatusOr<std::shared_ptr<ThreadSessions>> sessions = FindOpenSessions(target);
  if (!sessions.ok()) return sessions.status();
  if (absl::Status status = CheckDevice(**sessions, target.device); !status.ok()) return status;
  auto found = std::make_shared<Found>();
  found->sessions = *sessions;
  const std::string tables(target.tables);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(tables, '\n'))) {
    if (absl::Status status = AddTable(**sessions, line, *found); !status.ok()) return status;
  }
  return found;
}

absl::StatusOr<std::shared_ptr<const Found>> FindInCache(const OperatorTarget& target) {
  const std::string key = absl::StrCat(std::string(target.source), "\n", target.device, "\n",
                                       std::string(target.tables));
  Cache& cache = TheCache();
  {
    const MutexLock lock(cache.mutex);
    const auto entry = cache.found.find(key);
    if (entry != cache.found.end() && OpenSessionsOf(*entry->second) != nullptr)
      return entry->second;
  }
  absl::StatusOr<std::shared_ptr<const Found>> found = FindAnew(target);
  if (!found.ok()) return found.status();
  const MutexLock lock(cache.mutex);
  if (cache.found.size() >= kTargetsMax) cache.found.clear();
  cache.found[key] = *found;
  return found;
}

absl::StatusOr<OperatorTables> FindAnyTables(const OperatorTarget& target) {
  thread_local LastTarget last;
  if (last.found != nullptr && last.device == target.device && last.source == target.source &&
      last.tables == target.tables) {
    std::shared_ptr<ThreadSessions> sessions = OpenSessionsOf(*last.found);
    if (sessions != nullptr) return TablesOf(last.found, std::move(sessions));
  }
  absl::StatusOr<std::shared_ptr<const Found>> found = FindInCache(target);
  if (!found.ok()) return found.status();
  std::shared_ptr<ThreadSessions> sessions = OpenSessionsOf(**found);
  if (sessions == nullptr)  // since it was found
    return absl::FailedPreconditionError("this session is closed");
  last = {std::string(target.source), std::string(target.tables), target.device, *found};
  return TablesOf(*std::move(found), std::move(sessions));
}

// Frameworks call from code without exceptions.
template <typename Call>
auto WithoutExceptions(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("lookup: out of memory; try again later");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

absl::StatusOr<OperatorTables> FindTables(const OperatorTarget& target) {
  return WithoutExceptions([&] { return FindAnyTables(target); });
}

std::string_view TableName(std::string_view tables, size_t index) {
  for (; index > 0; --index)
    tables.remove_prefix(std::min(tables.find('\n'), tables.size() - 1) + 1);
  const std::string_view line = tables.substr(0, tables.find('\n'));
  return line.substr(0, line.rfind(':'));
}

absl::Status LookUp(const OperatorTables& tables, std::span<const OperatorKeys> keys,
                    const OperatorOutputs& outputs, const OperatorMemory& memory) {
  constexpr uintptr_t kLegacyStream = 1;  // cudaStreamLegacy: null would mean no stream
  void* const stream =
      memory.stream != nullptr ? memory.stream : reinterpret_cast<void*>(kLegacyStream);
  return WithoutExceptions([&] {
    return memory.space == MemorySpace::kHost
               ? LookUpIn<MemorySpace::kHost>(tables, keys, outputs, {})
               : LookUpIn<MemorySpace::kDevice>(tables, keys, outputs, {stream});
  });
}

}  // namespace hps::python
