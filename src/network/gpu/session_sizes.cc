#include "network/gpu/session_sizes.h"

#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "network/gpu/kernels/steps.h"
#include "network/onnx/graph.h"

namespace hps {
namespace {

constexpr uint64_t kParts = RowRoom::kPartsMax;

// Of a part. Enough for the kernels of a network.
constexpr uint64_t kPartSamplesMax = 16'384;
constexpr uint64_t kPartSamplesLeast = 256;
// What kParts parts bring from the host.
constexpr uint64_t kBroughtBytesMax = uint64_t{96} << 20;
// What a call takes to the host, unless batch_max samples take more.
constexpr uint64_t kOutputBytesMax = uint64_t{16} << 20;

bool ReadsTable(const ModelNetwork& network, const OnnxValue& input) {
  return std::any_of(network.inputs.begin(), network.inputs.end(), [&](const NetworkInput& of) {
    return of.name == input.name && !of.table.empty();
  });
}

// The largest power of two from `least` on, up to `most`, whose samples take at most `bytes_max`.
uint64_t SamplesWithin(uint64_t least, uint64_t most, uint64_t sample_bytes, uint64_t bytes_max) {
  uint64_t samples = least;
  while (2 * samples <= most && 2 * samples * sample_bytes <= bytes_max) samples *= 2;
  return samples;
}

}  // namespace

uint64_t AlignedForInput(uint64_t bytes) {
  return (bytes + kInputAlignment - 1) / kInputAlignment * kInputAlignment;
}

uint64_t InputBytes(const OnnxValue& input) {
  uint64_t bytes = OnnxElementBytes(static_cast<int32_t>(input.element));
  for (size_t d = 1; d < input.dims.size(); ++d) bytes *= static_cast<uint64_t>(input.dims[d]);
  return bytes;
}

uint64_t OutputBytes(const PlanView& output) {
  return static_cast<uint64_t>(output.ElementCount()) * sizeof(float);
}

SessionSizes SizesOf(const DensePlan& plan, const ModelNetwork& network,
                     const DeviceDenseOptions& options, uint64_t free_bytes) {
  SessionSizes sizes;
  uint64_t run_bytes =  // of a sample
      static_cast<uint64_t>(plan.arena_elements + plan.padded_elements) * sizeof(float);
  uint64_t bags = 0;  // of a sample
  for (const OnnxValue& input : plan.inputs) {
    const uint64_t bytes = InputBytes(input);
    const bool has_bags = ReadsTable(network, input);
    run_bytes += bytes;
    bags += has_bags ? 1 : 0;
    sizes.sample_bytes += has_bags ? sizeof(BagPlace) : std::max<uint64_t>(bytes, sizeof(BagPlace));
  }
  const uint64_t part_samples = SamplesWithin(kPartSamplesLeast, kPartSamplesMax,
                                              kParts * sizes.sample_bytes, kBroughtBytesMax);
  // No call has more samples than kParts parts, so larger runs would be padding. Runs of more than
  // batch_max samples only save time, so all sessions together use at most half of the free memory
  // for them.
  sizes.run_samples = static_cast<uint32_t>(SamplesWithin(
      std::bit_ceil(std::max(1U, options.batch_max)), kParts * part_samples, run_bytes,
      std::min(options.buffer_bytes_max,
               free_bytes / 2 / std::max<uint64_t>(1, options.sessions))));
  const uint64_t part_runs = (part_samples - 1) / sizes.run_samples + 1;
  sizes.call_runs = kParts * part_runs;
  // Of a run: the steps of the pooling, and the padding behind each input.
  const uint64_t inputs = plan.inputs.size();
  const uint64_t more_bytes = AlignedForInput(inputs * sizeof(StepBags)) + inputs * kInputAlignment;
  sizes.part_bytes = AlignedForInput(part_samples * sizes.sample_bytes + part_runs * more_bytes);
  uint64_t output_bytes = 0;  // of a sample
  for (const PlanView& output : plan.output_views) output_bytes += OutputBytes(output);
  // Most calls have a key in each bag.
  const uint64_t samples_most = kKeysPerCallMax / std::max<uint64_t>(1, bags);
  const uint64_t all_outputs = std::max(std::min(kOutputBytesMax, samples_most * output_bytes),
                                        options.batch_max * output_bytes);
  sizes.output_bytes = all_outputs + plan.output_views.size() * kInputAlignment;
  const uint64_t total = all_outputs / std::max(output_bytes, sizeof(float));
  sizes.limits = {.samples_max = std::min(kParts * part_samples, total),
                  .part_samples_max = part_samples,
                  .parts_total_max = total};
  return sizes;
}

}  // namespace hps
