#include "network/gpu/gpu_batch.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"

namespace hps {
namespace {

constexpr int64_t kVector = 4;

// cuBLASLt takes at most 65,535 matrices at once. More go in parts whose size, a power of two,
// keeps the alignment of what they read and write.
constexpr int64_t kMatricesMax = 65'535;
constexpr int64_t kMatricesOfPart = 32'768;

// Dimensions whose elements follow one another in every view become one, and those of 1 vanish.
void MergeDims(std::vector<PlanView>& views) {
  size_t d = 0;
  while (d + 1 < views.front().dims.size()) {
    const bool is_one = d > 0 && views.front().dims[d] == 1;
    const bool merges = std::all_of(views.begin(), views.end(), [&](const PlanView& view) {
      if (view.gather_dim == static_cast<int>(d)) return false;
      if (is_one) return true;
      return view.gather_dim != static_cast<int>(d + 1) &&
             view.strides[d] == view.strides[d + 1] * view.dims[d + 1];
    });
    if (!merges) {
      ++d;
      continue;
    }
    for (PlanView& view : views) {
      const auto at = static_cast<std::ptrdiff_t>(d);
      view.dims[d + 1] *= view.dims[d];
      view.dims.erase(view.dims.begin() + at);
      view.strides.erase(view.strides.begin() + at);
      if (view.gather_dim > static_cast<int>(d)) --view.gather_dim;
    }
  }
}

bool TakesVectors(const PlanView& view, bool is_output) {
  const size_t last = view.dims.size() - 1;
  if (view.gather_dim == static_cast<int>(last) || view.offset % kVector != 0) return false;
  if (view.strides[last] != 1 && (is_output || view.strides[last] != 0)) return false;
  return std::all_of(view.strides.begin(), view.strides.end() - 1,
                     [](int64_t stride) { return stride % kVector == 0; });
}

int64_t ElementBytes(OnnxElement element) {
  return static_cast<int64_t>(OnnxElementBytes(static_cast<int32_t>(element)));
}

absl::Status TooLarge() {
  return absl::UnimplementedError("a step has over 2^32 elements or too many dimensions");
}

}  // namespace

// Every buffer has room for float32; elements of 16 bits take the first half of it.
StepMemory GpuBatch::MemoryOf(const PlanView& view) const {
  const PlanBuffer& buffer = place_.plan->buffers[view.index];
  const OnnxElement element = (*place_.buffer_elements)[view.index];
  const auto room_begin = static_cast<int64_t>(sizeof(float)) * buffer.offset;
  std::byte* const begin = buffer.is_zero_padded ? place_.padded + room_begin * place_.batch_max
                                                 : place_.arena + room_begin * size_;
  return {begin + view.offset * ElementBytes(element), element};
}

StepView GpuBatch::ViewOf(const PlanView& view) const {
  StepView made;
  if (view.memory == PlanMemory::kInput) {
    made.input = static_cast<int32_t>(view.index);
    made.offset = view.offset;
    made.element = place_.plan->inputs[view.index].element;
  } else if (view.memory == PlanMemory::kWeights) {
    made.data = std::as_bytes(std::span(place_.weights + view.offset, 1)).data();
  } else {
    const StepMemory memory = MemoryOf(view);
    made.data = memory.data;
    made.element = memory.element;
  }
  made.gather_dim = view.gather_dim;
  if (view.gather_dim >= 0) made.gather = place_.indices + view.gather_begin;
  std::copy(view.strides.begin(), view.strides.end(), made.strides);
  return made;
}

absl::StatusOr<StepEntry> GpuBatch::EntryOf(const ElementwiseEntry& entry) const {
  std::vector<PlanView> views = entry.inputs;
  views.push_back(entry.output);
  MergeDims(views);
  const PlanView& output = views.back();
  StepEntry made;
  made.rank = static_cast<uint32_t>(output.dims.size());
  const int64_t elements = output.ElementCount();
  if (output.dims.size() > kPlanDimsMax || views.size() > kPlanInputsMax + 1 ||
      entry.program.size() > kPlanInstructionsMax ||
      elements > std::numeric_limits<int32_t>::max() / int64_t{size_}) {
    return TooLarge();
  }
  made.sample_rows = static_cast<uint32_t>(output.dims.front());
  for (size_t d = 0; d < output.dims.size(); ++d)
    made.dims[d] = static_cast<uint32_t>(output.dims[d]);
  made.dims[0] *= size_;
  bool takes_vectors = output.dims.back() % kVector == 0 && TakesVectors(output, true) &&
                       (output.dims.size() > 1 || output.strides.back() == 1);
  for (size_t i = 0; i + 1 < views.size(); ++i) {
    made.inputs[i] = ViewOf(views[i]);
    takes_vectors =
        takes_vectors && TakesVectors(views[i], false) &&
        (views[i].memory == PlanMemory::kBuffer || made.inputs[i].element == OnnxElement::kFloat32);
  }
  made.input_count = static_cast<uint32_t>(entry.inputs.size());
  made.instruction_count = static_cast<uint32_t>(entry.program.size());
  std::copy(entry.program.begin(), entry.program.end(), made.program);
  made.output = MemoryOf(output);
  std::copy(output.strides.begin(), output.strides.end(), made.output_strides);
  made.vector = takes_vectors ? kVector : 1;
  made.vector_count = static_cast<uint32_t>(elements * size_) / made.vector;
  return made;
}

absl::StatusOr<std::byte*> GpuBatch::Upload(std::span<const std::byte> data) {
  HPS_ASSIGN_OR_RETURN(DeviceBuffer table,
                       MakeDeviceBuffer("steps of a dense network", data.size()));
  tables_.push_back(std::move(table));
  std::byte* const to = tables_.back().data();
  HPS_RETURN_IF_ERROR(place_.set_up->Copy(data, to, "copy of a dense network's steps"));
  return to;
}

absl::Status GpuBatch::Add(const ElementwiseStep& step) {
  std::vector<StepEntry> entries;
  ElementwiseLaunch launch;
  for (const ElementwiseEntry& entry : step.entries) {
    HPS_ASSIGN_OR_RETURN(const StepEntry made, EntryOf(entry));
    launch.vectors_max = std::max(launch.vectors_max, made.vector_count);
    launch.has_programs |= made.instruction_count > 0;
    entries.push_back(made);
  }
  HPS_ASSIGN_OR_RETURN(std::byte* const at, Upload(std::as_bytes(std::span(entries))));
  launch.entries = reinterpret_cast<const StepEntry*>(at);
  launch.entry_count = static_cast<uint32_t>(entries.size());
  launches_.push_back(launch);
  return absl::OkStatus();
}

absl::Status GpuBatch::AddNarrow(const GemmStep& step) {
  StepNarrow narrow{.a = MemoryOf(step.a),
                    .a_stride = step.a.strides[0],
                    .weights = place_.weights + step.weights,
                    .bias = step.bias < 0 ? nullptr : place_.weights + step.bias,
                    .output = MemoryOf(step.out),
                    .output_stride = step.out.strides[0],
                    .k = static_cast<uint32_t>(step.k),
                    .columns = static_cast<uint32_t>(step.n),
                    .has_relu = step.has_relu};
  const int64_t rows = step.a.dims[0] * size_;
  if (rows > std::numeric_limits<int32_t>::max() / 32 ||
      step.program.size() > kPlanNarrowInstructionsMax) {
    return TooLarge();
  }
  narrow.rows = static_cast<uint32_t>(rows);
  narrow.is_aligned =
      step.k % kVector == 0 && step.a.strides[0] % kVector == 0 && step.a.offset % kVector == 0;
  narrow.instruction_count = static_cast<uint32_t>(step.program.size());
  std::copy(step.program.begin(), step.program.end(), narrow.program);
  launches_.push_back(narrow);
  return absl::OkStatus();
}

absl::Status GpuBatch::Add(const GemmStep& step) {
  if (step.n <= kPlanNarrowMax) return AddNarrow(step);
  const StepMemory a = MemoryOf(step.a);
  const StepMemory out = MemoryOf(step.out);
  GemmShape shape{.m = step.a.dims[0] * size_, .n = step.n, .k = step.k};
  shape.a = {.data = a.data, .stride = step.a.strides[0]};
  shape.b = {.data = WeightsAt(step.weights, a.element), .stride = step.k, .is_transposed = true};
  shape.out = out.data;
  shape.out_stride = step.out.strides[0];
  shape.bias = step.bias < 0 ? nullptr : WeightsAt(step.bias, out.element);
  shape.has_relu = step.has_relu;
  return AddGemm(shape, a.element, out.element);
}

const std::byte* GpuBatch::WeightsAt(int64_t offset, OnnxElement element) const {
  if (element != OnnxElement::kFloat32)
    return place_.short_weights + offset * ElementBytes(element);
  return std::as_bytes(std::span(place_.weights + offset, 1)).data();
}

absl::Status GpuBatch::AddGemm(GemmShape shape, OnnxElement element, OnnxElement out_element) {
  if (shape.m > std::numeric_limits<int32_t>::max()) return TooLarge();
  shape.element = element;
  shape.out_element = out_element;
  shape.has_tf32 = element == OnnxElement::kFloat32 && place_.math != DenseMath::kFloat32;
  HPS_ASSIGN_OR_RETURN(Gemm gemm, Gemm::Make(place_.products, shape, {size_, launches_.size()}));
  launches_.push_back(std::move(gemm));
  return absl::OkStatus();
}

absl::Status GpuBatch::Add(const BatchedGemmStep& step) {
  const auto matrix = [this](const PlanView& view) {
    const bool is_transposed = view.strides[2] != 1;
    return GemmMatrix{.data = MemoryOf(view).data,
                      .stride = view.strides[is_transposed ? 2 : 1],
                      .matrix_stride = view.strides[0],
                      .is_transposed = is_transposed};
  };
  GemmShape shape{.m = step.out.dims[1],
                  .n = step.out.dims[2],
                  .k = step.a.dims[2],
                  .count = step.out.dims[0] * size_,
                  .a = matrix(step.a),
                  .b = matrix(step.b)};
  if (shape.count > std::numeric_limits<int32_t>::max()) return TooLarge();
  const StepMemory out = MemoryOf(step.out);
  shape.out = out.data;
  shape.out_stride = step.out.strides[1];
  shape.out_matrix_stride = step.out.strides[0];
  // A dimension of 1 leaves its stride open; cuBLASLt wants at least the width.
  shape.a.stride = std::max(shape.a.stride, shape.a.is_transposed ? shape.m : shape.k);
  shape.b.stride = std::max(shape.b.stride, shape.b.is_transposed ? shape.k : shape.n);
  return AddBatched(shape, MemoryOf(step.a).element, out.element);
}

absl::Status GpuBatch::AddBatched(const GemmShape& shape, OnnxElement element,
                                  OnnxElement out_element) {
  if (shape.count <= kMatricesMax) return AddGemm(shape, element, out_element);
  for (int64_t begin = 0; begin < shape.count; begin += kMatricesOfPart) {
    GemmShape part = shape;
    part.count = std::min(kMatricesOfPart, shape.count - begin);
    part.a.data += begin * shape.a.matrix_stride * ElementBytes(element);
    part.b.data += begin * shape.b.matrix_stride * ElementBytes(element);
    part.out += begin * shape.out_matrix_stride * ElementBytes(out_element);
    HPS_RETURN_IF_ERROR(AddGemm(part, element, out_element));
  }
  return absl::OkStatus();
}

absl::Status GpuBatch::Add(const PairsStep& step) {
  std::vector<StepPairsRow> rows;
  StepPairs pairs{
      .width = static_cast<uint32_t>(step.width), .samples = size_, .math = place_.math};
  pairs.is_aligned = step.width % kVector == 0;
  for (const PlanView& part : step.parts) {
    const bool is_input = part.memory == PlanMemory::kInput;
    for (int64_t r = 0; r < part.dims[1]; ++r) {
      StepPairsRow row{.sample_stride = part.strides[0]};
      if (!is_input) {
        const StepMemory memory = MemoryOf(part);
        row.data = memory.data;
        row.element = memory.element;
      }
      row.input = is_input ? static_cast<int32_t>(part.index) : -1;
      row.offset = (is_input ? part.offset : 0) + r * part.strides[1];
      pairs.is_aligned = pairs.is_aligned && row.offset % kVector == 0 &&
                         row.sample_stride % kVector == 0 && part.offset % kVector == 0;
      rows.push_back(row);
    }
  }
  HPS_CHECK(rows.size() == static_cast<size_t>(step.rows));
  HPS_ASSIGN_OR_RETURN(std::byte* const at, Upload(std::as_bytes(std::span(rows))));
  pairs.rows = reinterpret_cast<const StepPairsRow*>(at);
  pairs.row_count = static_cast<uint32_t>(rows.size());
  pairs.selected = place_.indices + step.selected_begin;
  pairs.selected_count = static_cast<uint32_t>(step.selected_count);
  pairs.output = MemoryOf(step.out);
  pairs.output_stride = step.out.strides[0];
  launches_.push_back(pairs);
  return absl::OkStatus();
}

absl::StatusOr<StepRows> GpuBatch::RowsOf(const PlanView& in, const PlanView& out,
                                          bool keeps_last) const {
  StepRows rows;
  const size_t rank = in.dims.size() - 1;
  const int64_t count = in.ElementCount() / std::max<int64_t>(in.dims.back(), 1);
  if (rank > kPlanDimsMax ||
      in.ElementCount() > std::numeric_limits<int32_t>::max() / int64_t{size_})
    return TooLarge();
  rows.rank = static_cast<uint32_t>(rank);
  for (size_t d = 0; d < rank; ++d) {
    rows.dims[d] = static_cast<uint32_t>(in.dims[d]) * (d == 0 ? size_ : 1);
    rows.input_strides[d] = in.strides[d];
    rows.output_strides[d] = out.strides[d];
  }
  rows.row_count = static_cast<uint32_t>(count * size_);
  rows.width = static_cast<uint32_t>(in.dims.back());
  rows.input_stride = in.strides.back();
  rows.output_stride = keeps_last ? out.strides.back() : 1;
  rows.input = MemoryOf(in);
  rows.output = MemoryOf(out);
  return rows;
}

absl::Status GpuBatch::Add(const ReduceStep& step) {
  HPS_ASSIGN_OR_RETURN(const StepRows rows, RowsOf(step.in, step.out, false));
  launches_.push_back(ReduceLaunch{step.reduction, rows});
  return absl::OkStatus();
}

absl::Status GpuBatch::Add(const NormalizeStep& step) {
  HPS_ASSIGN_OR_RETURN(const StepRows rows, RowsOf(step.in, step.out, true));
  StepNormalization how{.kind = step.kind, .epsilon = step.epsilon};
  if (step.scale >= 0) how.scale = place_.weights + step.scale;
  if (step.bias >= 0) how.bias = place_.weights + step.bias;
  launches_.push_back(NormalizeLaunch{how, rows});
  return absl::OkStatus();
}

absl::StatusOr<GpuBatch> GpuBatch::Make(const GpuPlanPlace& place, uint32_t size) {
  GpuBatch batch(place, size);
  const absl::Status made = batch.SetUp();
  if (absl::IsDeadlineExceeded(made))
    for (DeviceBuffer& table : batch.tables_) table.Leak();
  HPS_RETURN_IF_ERROR(made);
  return batch;
}

absl::Status GpuBatch::SetUp() {
  for (const PlanStep& step : place_.plan->steps) {
    HPS_RETURN_IF_ERROR(std::visit([this](const auto& of) { return Add(of); }, step));
  }
  return Record();
}

absl::Status GpuBatch::Enqueue(const StepLaunch& launch, cudaStream_t stream) const {
  if (const auto* elementwise = std::get_if<ElementwiseLaunch>(&launch))
    return LaunchElementwise(*elementwise, place_.arguments, stream);
  if (const auto* gemm = std::get_if<Gemm>(&launch)) return gemm->Run(stream);
  if (const auto* pairs = std::get_if<StepPairs>(&launch))
    return LaunchPairs(*pairs, place_.arguments, stream);
  if (const auto* narrow = std::get_if<StepNarrow>(&launch)) return LaunchNarrow(*narrow, stream);
  if (const auto* reduce = std::get_if<ReduceLaunch>(&launch))
    return LaunchReduce(reduce->reduction, reduce->rows, stream);
  const auto& normalize = std::get<NormalizeLaunch>(launch);
  return LaunchNormalize(normalize.how, normalize.rows, stream);
}

absl::Status GpuBatch::Record() {
  const cudaStream_t stream = place_.set_up->get();
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                 "recording of a dense network"));
  absl::Status status;
  for (const StepLaunch& launch : launches_) {
    status = Enqueue(launch, stream);
    if (!status.ok()) break;
  }
  cudaGraph_t graph = nullptr;
  const absl::Status ended =
      CudaStatus(cudaStreamEndCapture(stream, &graph), "recording of a dense network");
  HPS_RETURN_IF_ERROR(status);
  HPS_RETURN_IF_ERROR(ended);
  cudaGraphExec_t made = nullptr;
  const absl::Status instantiated =
      CudaStatus(cudaGraphInstantiate(&made, graph, 0), "graph of a dense network");
  (void)cudaGraphDestroy(graph);
  HPS_RETURN_IF_ERROR(instantiated);
  graph_.reset(made);
  // Its memory on the device; else the first launch would make it.
  return CudaStatus(cudaGraphUpload(made, stream), "graph of a dense network");
}

absl::Status GpuBatch::Launch(cudaStream_t stream) const {
  return CudaStatus(cudaGraphLaunch(graph_.get(), stream), "launch of a dense network");
}

absl::Status GpuBatch::LaunchPart(GpuPart part, cudaStream_t stream) const {
  for (const StepLaunch& launch : launches_) {
    const bool is_product =
        std::holds_alternative<Gemm>(launch) || std::holds_alternative<StepNarrow>(launch);
    const GpuPart its_part = is_product                                  ? GpuPart::kProducts
                             : std::holds_alternative<StepPairs>(launch) ? GpuPart::kPairs
                                                                         : GpuPart::kRest;
    if (its_part == part) HPS_RETURN_IF_ERROR(Enqueue(launch, stream));
  }
  return absl::OkStatus();
}

// Float32Buffers: outputs are never of 16 bits.
const float* GpuBatch::output(size_t i) const {
  return reinterpret_cast<const float*>(MemoryOf(place_.plan->output_views[i]).data);
}

}  // namespace hps
