#include "inference/network_places.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/public_message.h"

namespace hps {
namespace {

struct RowBudgets {
  Mutex mutex;
  std::map<int, std::weak_ptr<ByteBudget>> by_device HPS_GUARDED_BY(mutex);
};

// The budget that all networks of the process share on a device, for as long as one of them is
// there. It is the largest bytes_max of these networks.
std::shared_ptr<ByteBudget> RowBudgetOf(int device, uint64_t bytes_max) {
  static RowBudgets budgets;
  MutexLock lock(budgets.mutex);
  std::weak_ptr<ByteBudget>& shared = budgets.by_device[device];
  std::shared_ptr<ByteBudget> budget = shared.lock();
  if (budget == nullptr) {
    budget = std::make_shared<ByteBudget>(absl::StrCat("rows of predictions on device ", device),
                                          bytes_max);
    shared = budget;
  } else {
    budget->GrowTo(bytes_max);
  }
  return budget;
}

// The bytes of each session's row room. `bytes_left`: for the rooms of all sessions.
absl::StatusOr<uint64_t> RowBytes(const DeviceWishes& wishes, const DeviceDenseOptions& options,
                                  uint64_t bytes_left) {
  const uint64_t sessions = options.sessions;
  // The rows of each table begin at a multiple of the alignment, and so does each part.
  const auto rows_of = [&](uint64_t keys) {
    return keys * wishes.row_bytes + (wishes.table_count + 1) * RowRoom::kTableAlignment;
  };
  const uint64_t wanted =
      std::min(RowRoom::kPartsMax * rows_of(options.keys_max), RowRoom::kRowBytesMax);
  const uint64_t least = std::min(rows_of(wishes.keys_max), RowRoom::kRowBytesLeast);
  if (bytes_left / sessions >= least) return std::clamp(bytes_left / 2 / sessions, least, wanted);
  return absl::ResourceExhaustedError(
      absl::StrCat("the rows of predictions take at least ", sessions * least, " bytes, ", least,
                   " for each of ", sessions, " lookup slots, and ", bytes_left,
                   " bytes of its memory are left for them"));
}

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeOn(int device, const ModelNetwork& network,
                                                     const DeviceWishes& wishes) {
  const uint64_t device_count = wishes.devices.size();
  DeviceDenseOptions options{
      .device = device,
      .batch_max = static_cast<uint32_t>(wishes.batch_max),
      .math = wishes.math,
      .sessions = (std::max<uint64_t>(1, wishes.session_count) + device_count - 1) / device_count,
      .keys_max = std::max(wishes.keys_max, wishes.call_keys_max)};
  uint64_t bytes_left = wishes.row_bytes_max ? wishes.row_bytes_max(device) : UINT64_MAX;
  if (bytes_left != UINT64_MAX) {
    options.row_budget = RowBudgetOf(device, bytes_left);
    bytes_left = options.row_budget->bytes_left();
  }
  HPS_ASSIGN_OR_RETURN(options.row_bytes, RowBytes(wishes, options, bytes_left));
  return wishes.make(network, options);
}

// The model can't be loaded, or one of its slots not be made.
absl::Status NoMemoryOn(int device, const absl::Status& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the dense network on device ", device, ": ", error.message(),
                   ": lower [l1] bytes_max or [server] lookups, or set [server] dense_device to "
                   "\"cpu\"; a version that is served keeps its memory until it is unloaded"));
}

}  // namespace

// Runs on the device, if it has one; a batch for which that fails runs on the CPU.
class NetworkPlaces::Session final : public DenseSession {
 public:
  Session(NetworkPlaces& places, int device, std::unique_ptr<DenseSession> on_device,
          std::unique_ptr<DenseSession> on_cpu)
      : places_(places),
        device_(device),
        on_device_(std::move(on_device)),
        on_cpu_(std::move(on_cpu)) {}

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    if (on_device_ == nullptr) {
      HPS_RETURN_IF_ERROR(on_cpu_->Run(inputs, outputs));
      places_.counts_.on_cpu.fetch_add(1, std::memory_order_relaxed);
      return absl::OkStatus();
    }
    const absl::Status ran = on_device_->Run(inputs, outputs);
    if (ran.ok()) {
      places_.counts_.on_devices.fetch_add(1, std::memory_order_relaxed);
      return ran;
    }
    LogWarning(absl::StrCat("model '", places_.model_, "': the dense network failed on device ",
                            device_, "; its batch runs on the CPU: ", TextForLog(ran)));
    HPS_RETURN_IF_ERROR(on_cpu_->Run(inputs, outputs));
    places_.counts_.device_failures.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  RowRoom* row_room() override { return on_device_ ? on_device_->row_room() : nullptr; }
  DeviceLimits device_limits() const override { return device_session().device_limits(); }

  // If this fails, the caller runs the batch again, with rows in the host's memory.
  absl::Status RunFromRows(uint32_t samples, std::span<const FedInput> inputs,
                           std::span<std::byte* const> outputs) override {
    HPS_RETURN_IF_ERROR(device_session().RunFromRows(samples, inputs, outputs));
    places_.counts_.on_devices.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status BeginParts(uint32_t samples) override {
    return device_session().BeginParts(samples);
  }
  absl::Status EnqueuePart(const SampleRange& part, std::span<const FedInput> inputs) override {
    return device_session().EnqueuePart(part, inputs);
  }
  absl::Status EndParts(std::span<std::byte* const> outputs) override {
    HPS_RETURN_IF_ERROR(device_session().EndParts(outputs));
    places_.counts_.on_devices.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

 private:
  // Who has a row_room() has a device.
  DenseSession& device_session() const {
    HPS_CHECK(on_device_ != nullptr);
    return *on_device_;
  }

  NetworkPlaces& places_;
  const int device_;
  const std::unique_ptr<DenseSession> on_device_;
  const std::unique_ptr<DenseSession> on_cpu_;
};

absl::Status NetworkPlaces::AddDevices(const ModelNetwork& network, const DeviceWishes& wishes) {
  const std::vector<int>& devices = wishes.devices;
  absl::Status first_error;
  for (const int device : devices) {
    absl::StatusOr<std::unique_ptr<DenseNetwork>> made = MakeOn(device, network, wishes);
    if (made.ok()) {
      on_devices_.emplace(device, *std::move(made));
      continue;
    }
    if (absl::IsResourceExhausted(made.status())) return NoMemoryOn(device, made.status());
    first_error.Update(absl::Status(
        made.status().code(), absl::StrCat("device ", device, ": ", made.status().message())));
    // What a device can't run, no other one can.
    if (absl::IsUnimplemented(made.status())) break;
  }
  if (first_error.ok()) return absl::OkStatus();
  LogWarning(absl::StrCat("model '", model_, "': the dense network runs on the CPU, and on ",
                          on_devices_.size(), " of ", devices.size(),
                          " GPUs: ", TextForLog(first_error)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DenseSession>> NetworkPlaces::NewSession(int device) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<DenseSession> on_cpu, on_cpu_->NewSession());
  if (const auto found = on_devices_.find(device);
      found != on_devices_.end() && !found->second.hangs) {
    absl::StatusOr<std::unique_ptr<DenseSession>> made = found->second.network->NewSession();
    if (made.ok()) {
      return std::make_unique<Session>(*this, device, *std::move(made), std::move(on_cpu));
    }
    if (absl::IsResourceExhausted(made.status())) return NoMemoryOn(device, made.status());
    found->second.hangs = absl::IsDeadlineExceeded(made.status());
    LogWarning(absl::StrCat("model '", model_,
                            "': a session of the dense network runs on the CPU, not on device ",
                            device, ": ", TextForLog(made.status())));
  }
  return std::make_unique<Session>(*this, device, nullptr, std::move(on_cpu));
}

NetworkRuns NetworkPlaces::runs() const {
  return {.on_devices = counts_.on_devices.load(std::memory_order_relaxed),
          .on_cpu = counts_.on_cpu.load(std::memory_order_relaxed),
          .device_failures = counts_.device_failures.load(std::memory_order_relaxed)};
}

}  // namespace hps
